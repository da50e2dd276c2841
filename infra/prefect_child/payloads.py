"""What a run can be executed again with, taken out of its record: the request becomes the flow run's parameter, the
results of its steps become files."""

from typing import Final, Literal

from infra.blobs import Blobs, Held
from infra.prefect_child.batch import Recorded
from infra.records import Payload, RunRecord
from infra.requests import INLINE_BYTES, Parameter, Store, blob_parameter, gone, make_parameter
from infra.run_files import RunFiles, require_run_id

Mode = Literal["all", "failed", "none"]

_NOT_KEPT: Final = "requests are not kept here (record.payloads = none)."
_SUCCEEDED: Final = "requests of runs that succeeded are not kept here (record.payloads = failed)."
_SHED: Final = "its request was too large to be kept, or there was no space left for it when it ended."
_UNREADABLE: Final = "its request cannot be stored: it is nested too deeply, or is no JSON object."


_LASTING: Final = 10_000
"""More runs than can be under way at once."""


class _Holding:
    """Blobs, for one request that may be let go again."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs
        self.held: Held | None = None

    def put(self, data: bytes) -> str:
        self.held = self._blobs.hold(data)
        return self.held.ref


class PayloadKeeper:
    """Keeps payloads as `record.payloads` says (`mode`): large requests in `blobs`, results of steps in `files`.

    With `failed` no request stands in the database, and those of runs that succeeded stand nowhere: what is kept of a
    run that lasts is let go when it has succeeded. (If this process ends meanwhile, it stays until `blobs` is pruned.)
    """

    def __init__(self, mode: Mode, blobs: Blobs, files: RunFiles) -> None:
        self._mode = mode
        self._blobs = blobs
        self._files = files
        self._held: dict[str, Held] = {}
        """By run: what is kept of those that last, the oldest first."""

    def keep(self, run: RunRecord, *, readable: bool = True) -> Recorded:
        """Keep the payload; the record has none afterwards. Doing so twice is the same as once. `readable` is False
        where the line's payload had to be dropped to read the rest.

        Raises:
            InvalidRequest: the run's or a step's id, or the blob's reference, is none.
            DiskFull: there is no room.
        """
        require_run_id(run.id)
        payload, run.payload = run.payload, None
        if run.status == "completed":
            self._files.forget_steps(run.id)  # of the time when it was still running: a retry starts anew
        if run.status != "running" and (held := self._held.pop(run.id, None)) and run.status == "completed":
            self._blobs.let_go(held)
        if payload is None:
            return Recorded(run, gone(self._missing(run) if readable else _UNREADABLE))
        if self._mode == "none" or (self._mode == "failed" and run.status == "completed"):
            return Recorded(run, gone(self._missing(run)))
        if run.status != "completed":
            for step, value in payload.steps.items():
                self._files.keep_step(run.id, step, value)
        if self._mode == "failed" and run.status == "running":
            return Recorded(run, self._lasting(run.id, payload))
        return Recorded(run, self._parameter(payload, self._blobs))

    def _lasting(self, run: str, payload: Payload) -> Parameter:
        """As `_parameter`, of a run that may yet succeed."""
        if run not in self._held:
            holding = _Holding(self._blobs)
            parameter = self._parameter(payload, holding)
            if holding.held is None:
                return parameter
            self._held[run] = holding.held
            if len(self._held) > _LASTING:  # runs that never ended
                del self._held[next(iter(self._held))]
        return blob_parameter(self._held[run].ref)

    def _parameter(self, payload: Payload, blobs: Store) -> Parameter:
        if payload.blob is not None:
            return blob_parameter(payload.blob)
        if not isinstance(payload.request, dict):
            return gone(_UNREADABLE)
        return make_parameter(payload.request, blobs, inline_bytes=INLINE_BYTES if self._mode == "all" else 0)

    def _missing(self, run: RunRecord) -> str:
        if self._mode == "none":
            return _NOT_KEPT
        return _SUCCEEDED if self._mode == "failed" and run.status == "completed" else _SHED
