"""What may be wrong with the processes of a running install: which are gone, and how each ended last."""

from collections.abc import Sequence

from infra.doctor import Check
from infra.supervisor.types import ChildState


def check_processes(states: Sequence[ChildState]) -> Check:
    """The supervisor's children, as the front knows them. One that came back after its end is well, and says why."""
    given_up = [state for state in states if state.status == "quarantined"]
    away = [state for state in states if state.status == "backoff"]
    if given_up:
        found = _told(given_up, "was given up")
        mend = "mend that; then load the model again, or restart `coderai serve` for any other process"
        return Check("processes", "problem", found, mend)
    if away:
        return Check("processes", "warning", _told(away, "has ended and is started again"), "look again in a minute")
    running = [state for state in states if state.status == "running"]
    again = [state for state in running if state.incarnation > 1 and state.reason]
    found = ", ".join(state.name for state in running)
    return Check("processes", "ok", f"{found}; {_told(again, 'was started again')}" if again else found)


def _told(states: Sequence[ChildState], what: str) -> str:
    return "; ".join(f"{state.name} {what}: {state.reason or 'it said nothing'}" for state in states)
