"""The base of our value objects, and the ids that must not be confused with plain text."""

from typing import NewType

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
KeyName = NewType("KeyName", str)
"""The name of an API key: what logs and metrics show."""


class Frozen(BaseModel):
    """Immutable, and strict about unknown fields: the base of everything that crosses a boundary."""

    model_config = ConfigDict(frozen=True, extra="forbid")
