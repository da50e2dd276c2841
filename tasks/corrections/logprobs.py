"""Log probabilities: chat gives more or fewer alternatives than asked for, completions give the chat's form."""

from infra.types import Json
from tasks.corrections.types import Body, Traits, choices_of, index_of, inner, number, objects, with_choices


def chat_applies(body: Body, _traits: Traits) -> bool:
    """The client wants them."""
    return body.get("logprobs") is True


def chat_request(body: Body, _traits: Traits) -> Body:
    """With no alternatives asked for llama.cpp gives twenty (none named) or nothing at all (0): ask for one."""
    return body if number(body.get("top_logprobs")) else {**body, "top_logprobs": 1}


def chat_response(answer: Body, body: Body) -> Body:
    """Cut the alternatives to what was asked for, and name the refusal, which OpenAI's schema demands."""
    most = number(body.get("top_logprobs"))
    return with_choices(answer, [_chat_choice(choice, most) for choice in choices_of(answer)])


class ChatLogprobs:
    """The same in a stream."""

    def __init__(self, body: Body) -> None:
        self._body = body

    def chunk(self, chunk: Body) -> list[Body]:
        """The chunk with its log probabilities put right."""
        return [chat_response(chunk, self._body)]

    def end(self) -> list[Body]:
        """Nothing."""
        return []


def _chat_choice(choice: Body, most: int) -> Body:
    content = inner(choice, "logprobs").get("content")
    if not isinstance(content, list):
        return choice
    tokens: list[Json] = [_without_id(token, most) for token in objects(content)]
    return {**choice, "logprobs": {"content": tokens, "refusal": None}}


def _without_id(token: Body, most: int) -> Body:
    plain = {key: value for key, value in token.items() if key != "id"}
    tops = objects(token.get("top_logprobs"))[:most]
    plain["top_logprobs"] = [{key: value for key, value in top.items() if key != "id"} for top in tops]
    return plain


def text_applies(body: Body, _traits: Traits) -> bool:
    """A number is given, 0 included: 0 means the chosen tokens alone."""
    return isinstance(body.get("logprobs"), int)


def text_request(body: Body, _traits: Traits) -> Body:
    """At 0 llama.cpp gives none at all: ask for one."""
    return body if body.get("logprobs") else {**body, "logprobs": 1}


def text_response(answer: Body, body: Body) -> Body:
    """The form of completions: four lists, `text_offset` counted from the prompt's beginning if that is a text."""
    mender = TextLogprobs(body)
    return mender.chunk(answer)[0]


class TextLogprobs:
    """The same in a stream: offsets go on from chunk to chunk."""

    def __init__(self, body: Body) -> None:
        self._most = number(body.get("logprobs"))
        self._prompt = body.get("prompt")
        self._answers = max(1, number(body.get("n")))
        self._offsets: dict[int, int] = {}

    def chunk(self, chunk: Body) -> list[Body]:
        """The chunk with its log probabilities in the form of completions."""
        return [with_choices(chunk, [self._choice(choice) for choice in choices_of(chunk)])]

    def end(self) -> list[Body]:
        """Nothing."""
        return []

    def _choice(self, choice: Body) -> Body:
        tokens = objects(inner(choice, "logprobs").get("content"))
        if not tokens:
            return {**choice, "logprobs": None}
        index = index_of(choice)
        at = self._offsets.get(index)
        if at is None:
            at = len(prompt_text(self._prompt, index // self._answers))
        offsets: list[Json] = []
        for token in tokens:
            offsets.append(at)
            at += len(str(token.get("token")))
        self._offsets[index] = at
        lists: Body = {
            "tokens": [token.get("token") for token in tokens],
            "token_logprobs": [token.get("logprob") for token in tokens],
            "top_logprobs": [self._tops(token) for token in tokens],
            "text_offset": offsets,
        }
        return {**choice, "logprobs": lists}

    def _tops(self, token: Body) -> Body:
        """The best alternatives and, as OpenAI has it, always the token that was chosen."""
        tops = {str(top.get("token")): top.get("logprob") for top in objects(token.get("top_logprobs"))[: self._most]}
        return {**tops, str(token.get("token")): token.get("logprob")}


def prompt_text(prompt: Json, place: int) -> str:
    """The prompt at a place, if it is a text."""
    if isinstance(prompt, list):
        prompt = prompt[place] if place < len(prompt) else ""
    return prompt if isinstance(prompt, str) else ""
