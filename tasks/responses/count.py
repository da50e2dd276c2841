"""How many tokens a request would give its model to read: asked of the engine, which knows the model's template."""

from typing import Final

import orjson

from infra.errors import EngineFailed
from infra.types import Json
from tasks.corrections.table import mend
from tasks.corrections.types import CHAT, traits_of
from tasks.generate import ask
from tasks.types import TaskCall, TaskResult

_TOKENS: Final = "input_tokens"


async def count_tokens(call: TaskCall) -> TaskResult:
    """OpenAI's object with the `input_tokens` of `inputs["request"]`: a chat, of a far service a response.

    Raises:
        EngineFailed, UpstreamRefused: as `tasks.generate.generate`; also an engine that does not count.
    """
    request, engine = call.inputs["request"], call.leased()
    assert isinstance(request, dict)
    if engine.local:
        mending = mend(CHAT, request, traits_of(engine.props))
        answer, _usage = await ask(call, f"{CHAT}/{_TOKENS}", mending.body if mending else request)
    else:
        answer, _usage = await ask(call, f"/responses/{_TOKENS}", request)
    tokens = answer.get(_TOKENS)
    if not isinstance(tokens, int):
        raise EngineFailed(f"{engine.id} did not say how many tokens the input has")
    counted: dict[str, Json] = {"object": "response.input_tokens", _TOKENS: tokens}
    return TaskResult(orjson.dumps(counted))
