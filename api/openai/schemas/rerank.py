"""`POST /v1/rerank`, in the shape that Cohere and Jina share."""

from typing import Annotated, Final, NotRequired

from pydantic import Field, StringConstraints, TypeAdapter, with_config
from typing_extensions import TypedDict

from api.openai.schemas.shared import STRICT, Body, ModelField, User, View, check_known, validate

MAX_DOCUMENTS: Final = 2048

_Passage = Annotated[str, StringConstraints(max_length=10_000_000)]
_Query = Annotated[str, StringConstraints(min_length=1, max_length=1_000_000)]


class _Document(TypedDict):
    text: _Passage


@with_config(STRICT)
class RerankBody(TypedDict):
    """The request's body. `top_n` above the number of documents means all of them."""

    model: ModelField
    query: _Query
    documents: Annotated[list[_Passage | _Document], Field(min_length=1, max_length=MAX_DOCUMENTS)]
    top_n: NotRequired[Annotated[int, Field(ge=1)] | None]
    return_documents: NotRequired[bool | None]
    user: NotRequired[User | None]


KNOWN: Final = frozenset(RerankBody.__annotations__)
_ADAPTER: Final = TypeAdapter(RerankBody)


def check(body: Body, *, unknown_fields: bool = False) -> View:
    """Check a rerank request; `View.choices` is the number of documents.

    Raises:
        InvalidRequest: with `param` and one sentence.
    """
    if not unknown_fields:
        check_known(body, KNOWN)
    validate(_ADAPTER, body)
    documents, user = body["documents"], body.get("user")
    count = len(documents) if isinstance(documents, list) else 0
    return View(model=str(body["model"]), choices=count, user=user if isinstance(user, str) else None)


def texts(body: Body) -> list[str]:
    """The documents of a checked request as plain texts."""
    documents = body["documents"]
    assert isinstance(documents, list)
    return [str(document["text"]) if isinstance(document, dict) else str(document) for document in documents]
