"""What several commands need: the install's settings, its database, and its running front."""

import contextlib
import errno
import json
import os
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.table import Column, Table

from infra.database import Database, open_database
from infra.errors import CoderAIError, InvalidRequest, SettingsInvalid
from infra.files import make_private_folder
from infra.listen import RUN_FILE
from infra.migrate import migrate
from infra.settings import Settings, load_settings

_UNFOLDED_CHARS = 10_000
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Never through a proxy of the environment, which would get the internal token."""


@contextlib.contextmanager
def install() -> Iterator[tuple[Settings, Database]]:
    """The settings and the open database, made and migrated if need be."""
    settings = load_settings()
    make_home(settings)
    database = open_database(settings.sqlalchemy_url)
    try:
        migrate(database)
        yield settings, database
    finally:
        database.close()


def make_home(settings: Settings, *folders: str) -> None:
    """The install's folder and these below it, made where they are missing.

    Raises:
        SettingsInvalid: it cannot be used.
        DiskFull: no room for it.
    """
    try:
        for folder in (settings.home, *(settings.at(name) for name in folders)):
            make_private_folder(folder)
            if not os.access(folder, os.W_OK | os.X_OK):
                raise PermissionError(errno.EACCES, "it may not be written", str(folder))
    except OSError as error:
        raise SettingsInvalid(
            f"{error.filename or settings.home} cannot be used: {error.strerror}; mend that, or choose another home "
            "with CODERAI_HOME",
            param="home",
        ) from error


def call_front(settings: Settings, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
    """Ask the install's running front, as its owner; gives the JSON that it answers.

    Raises:
        InvalidRequest: no front runs here.
        CoderAIError: what the front answered, with its `code`.
    """
    try:
        return json.loads(fetch(settings, method, path, body))
    except ValueError as error:
        raise CoderAIError(f"the server's answer to {path} is not JSON") from error


def fetch(
    settings: Settings, method: str, path: str, body: dict[str, Any] | None = None, timeout_s: float | None = None
) -> bytes:
    """The same for an answer that may be anything; a front that hangs counts as none after `timeout_s`."""
    url, token = _front(settings)
    request = urllib.request.Request(  # noqa: S310  # the URL is our own run file's
        url + path,
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
    )
    try:
        with _DIRECT.open(request, timeout=timeout_s) as answer:
            read: bytes = answer.read()
            return read
    except urllib.error.HTTPError as error:
        with contextlib.suppress(ValueError, KeyError, TypeError):
            detail = json.loads(error.read())["error"]
            raise CoderAIError(str(detail["message"]), code=detail.get("code")) from error
        raise CoderAIError(f"the server answered HTTP {error.code}") from error
    except OSError as error:
        raise _not_running(settings) from error


def front_url(settings: Settings) -> str:
    """Where the running front answers, such as `http://127.0.0.1:8776`.

    Raises:
        InvalidRequest: no front runs here.
    """
    return _front(settings)[0]


def _front(settings: Settings) -> tuple[str, str]:
    """The address and the token of the running front, by its run file."""
    try:
        run = json.loads(settings.at(*RUN_FILE).read_bytes())
        return str(run["url"]), str(run["token"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _not_running(settings) from error


def _not_running(settings: Settings) -> InvalidRequest:
    return InvalidRequest(f"no server of {settings.home} is running: start it with `coderai serve`")


def standard_output() -> Console:
    """Where tables go. No line is folded where it is no terminal: a script looks for whole names in it."""
    shown = Console()
    return shown if shown.is_terminal else Console(width=_UNFOLDED_CHARS)


def table(*names: str) -> Table:
    """A table whose cells are folded where the terminal is narrow: a name that is cut off cannot be copied."""
    return Table(*(Column(name, overflow="fold") for name in names))
