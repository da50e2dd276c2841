"""What several commands need: the install's settings, its database, and its running front."""

import contextlib
import errno
import json
import os
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

from rich.table import Column, Table

from infra.database import Database, open_database
from infra.errors import CoderAIError, InvalidRequest, SettingsInvalid
from infra.files import make_private_folder
from infra.listen import RUN_FILE
from infra.migrate import migrate
from infra.settings import Settings, load_settings

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
    """Ask the install's running front, as its owner.

    Raises:
        InvalidRequest: no front runs here.
        CoderAIError: what the front answered.
    """
    try:
        run = json.loads(settings.at(*RUN_FILE).read_bytes())
        address, token = f"{run['url']}{path}", run["token"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _not_running(settings) from error
    request = urllib.request.Request(  # noqa: S310  # the URL is our own run file's
        address,
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
    )
    try:
        with _DIRECT.open(request) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        with contextlib.suppress(ValueError, KeyError, TypeError):
            detail = json.loads(error.read())["error"]
            raise CoderAIError(str(detail["message"])) from error
        raise CoderAIError(f"the server answered HTTP {error.code}") from error
    except OSError as error:
        raise _not_running(settings) from error


def _not_running(settings: Settings) -> InvalidRequest:
    return InvalidRequest(f"no server of {settings.home} is running: start it with `coderai serve`")


def table(*names: str) -> Table:
    """A table whose cells are folded where the terminal is narrow: a name that is cut off cannot be copied."""
    return Table(*(Column(name, overflow="fold") for name in names))
