"""`POST /v1/embeddings`.

`input` is a text, a list of texts, tokens, or a list of token lists; not a mixture, not empty. `dimensions` shortens
the vectors and scales them back to length 1, for any model: for one that was not trained for it (Matryoshka) the
result is of less use, but well defined. More dimensions than the model has are refused, once its answer shows how
many it has.
"""

from typing import Annotated, Final, Literal, NotRequired

from pydantic import Field, StringConstraints, TypeAdapter, with_config
from typing_extensions import TypedDict

from api.openai.schemas.completions import Tokens
from api.openai.schemas.shared import STRICT, Body, ModelField, User, View, check_known, validate

MAX_INPUTS: Final = 2048
MAX_DIMENSIONS: Final = 65_536

_Input = Annotated[str, StringConstraints(min_length=1, max_length=10_000_000)]
_Inputs = Annotated[list[_Input], Field(min_length=1, max_length=MAX_INPUTS)]
_TokenLists = Annotated[list[Tokens], Field(min_length=1, max_length=MAX_INPUTS)]


@with_config(STRICT)
class EmbeddingsBody(TypedDict):
    """The request's body."""

    model: ModelField
    input: _Input | _Inputs | Tokens | _TokenLists
    dimensions: NotRequired[Annotated[int, Field(ge=1, le=MAX_DIMENSIONS)] | None]
    encoding_format: NotRequired[Literal["float", "base64"] | None]
    user: NotRequired[User | None]


KNOWN: Final = frozenset(EmbeddingsBody.__annotations__)
_ADAPTER: Final = TypeAdapter(EmbeddingsBody)


def check(body: Body, *, unknown_fields: bool = False) -> View:
    """Check an embeddings request; `View.choices` is the number of inputs.

    Raises:
        InvalidRequest: with `param` and one sentence.
    """
    if not unknown_fields:
        check_known(body, KNOWN)
    validate(_ADAPTER, body)
    given, user = body["input"], body.get("user")
    inputs = len(given) if isinstance(given, list) and not isinstance(given[0], int) else 1
    return View(model=str(body["model"]), choices=inputs, user=user if isinstance(user, str) else None)
