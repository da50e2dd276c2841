"""Where the Prefect child of this install answers, as the front knows it."""

from dataclasses import dataclass


@dataclass(slots=True)
class PrefectAddress:
    """`url` is the server's root (`http://127.0.0.1:PORT`), None while it is not up; `reason` then says why.

    Its UI stands below `/flows`, its API below `/flows/api`. `authorization` is the header's value that opens it; it
    never leaves this machine's own processes.
    """

    authorization: str
    url: str | None = None
    reason: str = "it is starting"
