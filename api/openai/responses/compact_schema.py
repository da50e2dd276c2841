"""`POST /v1/responses/compact`: what is taken, what is ignored.

Honoured: model, input, instructions, previous_response_id.

| field | here | reason |
|---|---|---|
| prompt_cache_*, service_tier, image, user, safety_identifier | no effect | hints |
| tools, parallel_tool_calls, reasoning, text, metadata | no effect | clients send what they send for a response |
| store | no effect | nothing is stored: the answer holds all there is |
| items | as in `/v1/responses` | a conversation may be compacted again |
| stream | 400 | a summary comes whole |
| other fields of responses and chats | 400; no effect by a far service | they are not about a summary |
"""

from typing import Final, NotRequired

from pydantic import TypeAdapter, with_config
from typing_extensions import TypedDict

from api.openai.responses.input_schema import Input, PreviousId, check_kinds, require_input, typed
from api.openai.schemas.chat import Hint, ShortText
from api.openai.schemas.shared import STRICT, Body, ModelField, Text, User, check_known, validate
from infra.errors import InvalidRequest


@with_config(STRICT)
class CompactBody(TypedDict):
    """The request's body."""

    model: ModelField
    input: NotRequired[Input | None]
    instructions: NotRequired[Text | None]
    previous_response_id: NotRequired[PreviousId | None]
    prompt_cache_key: NotRequired[User | None]
    prompt_cache_options: NotRequired[Hint | None]
    prompt_cache_retention: NotRequired[ShortText | None]
    service_tier: NotRequired[ShortText | None]
    image: NotRequired[Hint | None]
    user: NotRequired[User | None]
    safety_identifier: NotRequired[User | None]
    tools: NotRequired[list[object] | None]
    parallel_tool_calls: NotRequired[bool | None]
    reasoning: NotRequired[Hint | None]
    text: NotRequired[Hint | None]
    metadata: NotRequired[Hint | None]
    store: NotRequired[bool | None]


KNOWN: Final = frozenset(CompactBody.__annotations__)
_ADAPTER: Final = TypeAdapter(CompactBody)


def check(body: Body, *, far: bool = False) -> None:
    """Check a request for a compaction; `far`: for a model of a far service, which may see images, and know fields
    that we do not.

    Raises:
        InvalidRequest: with `param` and one sentence.
    """
    if body.get("stream") is True:
        raise InvalidRequest(
            "a compaction comes whole: leave out 'stream'", param="stream", code="unsupported_parameter"
        )
    if not far:
        check_known(body, KNOWN)
    check_kinds(body.get("input"), far=far)
    validate(_ADAPTER, {**body, "input": typed(body.get("input"))})
    require_input(body)
