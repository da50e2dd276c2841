"""The base of our value objects, and the ids that must not be confused with plain text."""

import os
from typing import Final, NewType

from pydantic import BaseModel, ConfigDict, JsonValue

Json = JsonValue

RunId = NewType("RunId", str)
"""A run's id: a UUID in text, the flow run's id later."""
ModelName = NewType("ModelName", str)
"""The name a client uses for a model."""
EngineId = NewType("EngineId", str)
"""One engine: `<pool>/<model>`; stable over restarts of its process."""
PoolId = NewType("PoolId", str)
"""A work pool: a card's id (`cpu`, `cuda-<uuid>`, `vulkan-0`), or `service:<host>` for a far service."""
HEAD_POOL: Final = PoolId("head")
"""The work pool that stands for this install, as the one that took a request: what holds for it holds for all requests,
far services' too, and a run that no card of it served belongs there."""
KeyName = NewType("KeyName", str)
"""The name of an API key: what logs and metrics show."""
FileId = NewType("FileId", str)
"""A file's id, `file-…`, or the name of one that a model has made."""
BatchId = NewType("BatchId", str)
"""A batch's id, `batch_…`."""
UploadId = NewType("UploadId", str)
"""The id of a file that comes in parts, `upload_…`."""
PartId = NewType("PartId", str)
"""The id of one such part, `part_…`."""
ResponseId = NewType("ResponseId", str)
"""A stored response: `resp_…`."""
ChatId = NewType("ChatId", str)
"""A chat completion that is stored: `chatcmpl-…`."""
ItemId = NewType("ItemId", str)
"""One item of a response's input or output: `msg_…`, `fc_…`, …"""
HubId = NewType("HubId", str)
"""A hub's model: `OWNER/REPO[:QUANT]`."""


def new_run_id() -> RunId:
    """A random UUID in text (version 4 of RFC 9562), made without the object that the standard library makes first."""
    digits = os.urandom(16).hex()
    variant = "89ab"[int(digits[16], 16) & 3]
    return RunId(f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}")


class Frozen(BaseModel):
    """Immutable, and strict about unknown fields: the base of everything that crosses a boundary."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class FarShape(BaseModel):
    """Immutable, and blind to unknown fields: what we read of another program's answer or file, which may grow."""

    model_config = ConfigDict(frozen=True, extra="ignore")
