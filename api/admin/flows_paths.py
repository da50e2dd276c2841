"""Which of the flow-run server's addresses can be reached through the front."""

import re
from urllib.parse import quote, unquote

from infra.errors import Forbidden, InvalidRequest

API = "/flows/api/"
UI_SETTINGS = "/flows/ui-settings"
SOCKETS = frozenset({"/flows/api/events/out", "/flows/api/events/in", "/flows/api/logs/out"})
"""The streams for people and scripts. The others are for workers, and ours do not come by the front."""
_ADMIN_READS = frozenset({"version", "settings", "storage"})
_NEVER = re.compile(r"[\x00-\x1f\x7f\\]")
_SAFE = "/~:@!$&'()*+,;=-._"


def canonical(path: str) -> str:
    """A path below /flows for the flow-run server, from one decoded once: it will decode what was looked at here.

    Raises:
        InvalidRequest: the path would mean another place to somebody who decodes it again, or walks up in it.
    """
    seen, text = path, unquote(path)
    while True:
        if _NEVER.search(seen) or not {".", ".."}.isdisjoint(seen.split("/")):
            raise InvalidRequest(
                "the path cannot be used: it has dots, backslashes or control characters as no page of ours"
            )
        if text == seen:
            break
        seen, text = text, unquote(text)
    if path != "/flows" and not path.startswith("/flows/"):
        raise InvalidRequest("flow runs are below /flows/")
    return quote(path, safe=_SAFE)


def require_allowed(method: str, path: str) -> None:
    """Refuse what would harm the install; `path` was decoded once.

    Prefect's API is an admin's: it can pause pools, delete runs, edit deployments. What it stores cannot make our
    workers run foreign code, because they look up flows by name alone; secrets in its blocks are its operator's own.
    Refused are:

    * all below `/admin` but to read. `version` and `settings` are what the UI shows (Prefect masks secrets in the
      latter); `storage` can be read, but not changed: it decides where results go, which belong in the install's
      directory. `database/clear`, `create` and `drop`, which some versions have, would take the records away under
      the recorder.
    * the record route. It writes rows past all of Prefect's rules; only the install's own processes have facts for it.

    Raises:
        Forbidden: it is one of these.
    """
    parts = [part for part in path.split("/") if part]
    area, rest = parts[2:3], parts[3:]
    if parts[:2] != ["flows", "api"]:
        return
    if area == ["admin"] and not (method in ("GET", "HEAD") and len(rest) == 1 and rest[0] in _ADMIN_READS):
        raise Forbidden(
            "this part of Prefect's API is closed here: the install keeps its own flow-run database",
            code="closed_here",
        )
    if area == ["coderai"]:
        raise Forbidden("this route is for the install's own processes", code="closed_here")
