"""What several commands need: the install's settings, its database, and its running front."""

import contextlib
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

from api.front import RUN_FILE
from infra.database import Database, open_database
from infra.errors import CoderAIError, InvalidRequest
from infra.files import make_private_folder
from infra.migrate import migrate
from infra.settings import Settings, load_settings


@contextlib.contextmanager
def install() -> Iterator[tuple[Settings, Database]]:
    """The settings and the open database, made and migrated if need be."""
    settings = load_settings()
    make_private_folder(settings.home)
    database = open_database(settings.sqlalchemy_url)
    try:
        migrate(database)
        yield settings, database
    finally:
        database.close()


def call_front(settings: Settings, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
    """Ask the install's running front, as its owner.

    Raises:
        InvalidRequest: no front runs here.
        CoderAIError: what the front answered.
    """
    try:
        run = json.loads(settings.at(*RUN_FILE).read_bytes())
        address, token = f"{run['url']}{path}", run["token"]
    except (OSError, ValueError, KeyError) as error:
        raise _not_running(settings) from error
    request = urllib.request.Request(  # noqa: S310  # the URL is our own run file's
        address,
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request) as answer:  # noqa: S310
            return json.load(answer)
    except urllib.error.HTTPError as error:
        with contextlib.suppress(ValueError):
            detail = json.loads(error.read())["error"]
            raise CoderAIError(str(detail["message"])) from error
        raise CoderAIError(f"the server answered HTTP {error.code}") from error
    except OSError as error:
        raise _not_running(settings) from error


def _not_running(settings: Settings) -> InvalidRequest:
    return InvalidRequest(f"no server of {settings.home} is running: start it with `coderai serve`")
