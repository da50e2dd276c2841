"""Usage without parsing."""

import pytest

from tasks.corrections.types import CHAT, COMPLETIONS, Body, inner
from tasks.corrections.usage import usage_in, usage_of
from tasks.types import Usage
from tests.tasks.corrections.live import Live, user

CHUNK = b'data: {"choices":[{"finish_reason":"length","index":0,"delta":{}}],"object":"chat.completion.chunk"'
DONE = b"\n\ndata: [DONE]\n\n"


@pytest.mark.parametrize(
    ("tail", "usage"),
    [
        (CHUNK + b',"timings":{"cache_n":30,"prompt_n":1,"prompt_ms":33.6,"predicted_n":6}}' + DONE, Usage(31, 6, 30)),
        (b'{"usage":{"completion_tokens":2,"prompt_tokens":5,"total_tokens":7}}', Usage(5, 2)),
        (
            b'{ "usage" : { "prompt_tokens": 5, "completion_tokens": 2, '
            b'"prompt_tokens_details": {"cached_tokens": 4} } }',
            Usage(5, 2, 4),
        ),
        (b'{"usage":{"prompt_tokens":9},"service_tier":"x"}\n\ndata: {"choices":[],"usage":null}' + DONE, Usage(9)),
        (b'"usage":{"prompt_tokens":1}}\n\ndata: {"usage":{"prompt_tokens":2,"total_tokens":2}}', Usage(2)),
        (b'{"data":[],"usage":{"prompt_tokens":3,"total_tokens":3}}', Usage(3)),
        (CHUNK + b"}" + DONE, None),
        (b'{"text":"\\"usage\\":{\\"prompt_tokens\\":1}"}', None),
        (b'{"usage":{"prompt_tokens":5', None),
        (b'mpt_tokens":5}}', None),
        (b"", None),
    ],
)
def test_usage_in_tails(tail: bytes, usage: Usage | None) -> None:
    assert usage_in(tail) == usage


@pytest.mark.parametrize("include_usage", [False, True])
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_every_real_answer_and_stream_tells_its_usage(tiny: Live, path: str, include_usage: bool) -> None:
    text: Body = {"messages": user("hi")} if path == CHAT else {"prompt": "hi"}
    body: Body = {**text, "max_tokens": 5, "temperature": 0}
    whole = usage_of(inner(tiny.bare(path, body), "usage"))
    options: Body = {"stream": True, "stream_options": {"include_usage": include_usage}}
    _, stream = tiny.raw(f"/v1{path}", {**body, **options})
    streamed = usage_in(stream[-4096:])
    assert streamed is not None
    assert (streamed.prompt_tokens, streamed.completion_tokens) == (whole.prompt_tokens, whole.completion_tokens)
    assert streamed.completion_tokens == 5
