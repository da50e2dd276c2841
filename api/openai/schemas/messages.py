"""The messages and tools of a chat.

Fields that OpenAI does not know are ignored inside messages, parts and tools (clients send back what other services
gave them, such as `reasoning_content` or `cache_control`); wrong types are not.
"""

from typing import Annotated, Final, Literal, NotRequired

from pydantic import Field, StringConstraints
from typing_extensions import TypedDict

from api.openai.schemas.shared import Text

MAX_MESSAGES: Final = 10_000
MAX_PARTS: Final = 1000
MAX_TOOLS: Final = 128
MAX_CALLS: Final = 128

Name = Annotated[str, StringConstraints(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_.-]+$")]
CallId = Annotated[str, StringConstraints(max_length=200)]


class _Text(TypedDict):
    type: Literal["text"]
    text: Text


class _Refusal(TypedDict):
    type: Literal["refusal"]
    refusal: Text


class _Url(TypedDict):
    url: str
    detail: NotRequired[str | None]


class _Image(TypedDict):
    type: Literal["image_url"]
    image_url: _Url


class _Audio(TypedDict):
    type: Literal["input_audio"]
    input_audio: dict[str, object]


class _File(TypedDict):
    type: Literal["file"]
    file: dict[str, object]


_Parts = Annotated[list[_Text], Field(max_length=MAX_PARTS)]
_UserPart = Annotated[_Text | _Image | _Audio | _File, Field(discriminator="type")]
_AssistantPart = Annotated[_Text | _Refusal, Field(discriminator="type")]
_UserParts = Annotated[list[_UserPart], Field(max_length=MAX_PARTS)]
_AssistantParts = Annotated[list[_AssistantPart], Field(max_length=MAX_PARTS)]


class _Developer(TypedDict):
    role: Literal["developer", "system"]
    content: Text | _Parts
    name: NotRequired[str | None]


class _User(TypedDict):
    role: Literal["user"]
    content: Text | _UserParts
    name: NotRequired[str | None]


class _Called(TypedDict):
    name: str
    arguments: Text


class _FunctionCall(TypedDict):
    id: CallId
    type: Literal["function"]
    function: _Called


class _CustomCall(TypedDict):
    id: CallId
    type: Literal["custom"]
    custom: dict[str, object]


_Call = Annotated[_FunctionCall | _CustomCall, Field(discriminator="type")]


class _Assistant(TypedDict):
    role: Literal["assistant"]
    content: NotRequired[Text | _AssistantParts | None]
    name: NotRequired[str | None]
    refusal: NotRequired[Text | None]
    audio: NotRequired[dict[str, object] | None]
    tool_calls: NotRequired[Annotated[list[_Call], Field(max_length=MAX_CALLS)] | None]
    function_call: NotRequired[_Called | None]


class _ToolAnswer(TypedDict):
    role: Literal["tool"]
    content: Text | _Parts
    tool_call_id: CallId


class _FunctionAnswer(TypedDict):
    role: Literal["function"]
    content: Text | None
    name: str


Message = Annotated[_User | _Assistant | _Developer | _ToolAnswer | _FunctionAnswer, Field(discriminator="role")]
Messages = Annotated[list[Message], Field(min_length=1, max_length=MAX_MESSAGES)]


class Function(TypedDict):
    """A function that the model may call; `parameters` is a JSON schema."""

    name: Name
    description: NotRequired[str | None]
    parameters: NotRequired[dict[str, object] | None]
    strict: NotRequired[bool | None]


class _FunctionTool(TypedDict):
    type: Literal["function"]
    function: Function


class _CustomTool(TypedDict):
    type: Literal["custom"]
    custom: dict[str, object]


Tool = Annotated[_FunctionTool | _CustomTool, Field(discriminator="type")]
Tools = Annotated[list[Tool], Field(max_length=MAX_TOOLS)]


class _Named(TypedDict):
    name: str


class _NamedFunction(TypedDict):
    type: Literal["function"]
    function: _Named


class _NamedCustom(TypedDict):
    type: Literal["custom"]
    custom: _Named


class _Allowed(TypedDict):
    mode: Literal["auto", "required"]
    tools: Annotated[list[dict[str, object]], Field(min_length=1, max_length=MAX_TOOLS)]


class _AllowedTools(TypedDict):
    type: Literal["allowed_tools"]
    allowed_tools: _Allowed


ToolChoice = (
    Literal["none", "auto", "required"]
    | Annotated[_NamedFunction | _NamedCustom | _AllowedTools, Field(discriminator="type")]
)
FunctionChoice = Literal["none", "auto"] | _Named
