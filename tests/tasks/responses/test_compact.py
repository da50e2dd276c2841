"""The task: it asks for a summary that leaves room for what follows, and gives OpenAI's object with it."""

import json
from typing import Any

import pytest

from infra.errors import EngineFailed, InvalidRequest, UpstreamRefused
from infra.types import Json
from tasks.responses.compact import SUMMARY_TYPE, compact
from tasks.types import TaskCall, TaskResult, Usage
from tests.tasks.responses.test_respond import TOO_LONG
from tests.tasks.test_generate import Far, whole
from tests.tasks.test_generate import far as far
from workers.live import Engine

pytestmark = pytest.mark.enable_socket

CHAT: dict[str, Json] = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "temperature": 0}
KEPT: list[Json] = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}]


def said(content: str | None, finish_reason: str = "stop", written: int | None = 200, **message: Any) -> bytes:
    """`written` tokens; None: of a service that counts none."""
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": content} | message,
        "finish_reason": finish_reason,
    }
    counts = {"prompt_tokens": 70, "completion_tokens": written, "prompt_tokens_details": {"cached_tokens": 5}}
    return json.dumps({"choices": [choice]} | ({} if written is None else {"usage": counts})).encode()


async def compacted(far: Far, engine: Engine | None = None, length_bytes: int = 0) -> TaskResult:
    messages: list[Json] = [{"role": "user", "content": "a" * length_bytes}]
    request: Json = CHAT | {"messages": messages} if length_bytes else CHAT
    return await compact(TaskCall({"request": request, "kept": KEPT}, far.transport, engine or far.local()))


async def test_a_summary_after_what_was_kept(far: Far) -> None:
    far.answer = whole(said(" The cat is called Otto.\n"))
    result = await compacted(far)
    assert (result.media_type, result.usage) == (SUMMARY_TYPE, Usage(70, 200, 5))
    assert isinstance(result.value, bytes)
    made = json.loads(result.value)
    assert (made["object"], made["id"][:5], made["output"][:-1]) == ("response.compaction", "resp_", KEPT)
    item = made["output"][-1]
    assert item.pop("id").startswith("cmp_")
    assert item == {"type": "compaction", "summary": "The cat is called Otto."}
    assert made["usage"] == {
        "input_tokens": 70,
        "input_tokens_details": {"cached_tokens": 5, "cache_write_tokens": 0},
        "output_tokens": 200,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 270,
    }


@pytest.mark.parametrize(
    ("context_tokens", "length_bytes", "most"),
    [
        pytest.param(8192, 20_000, 1024, id="usual"),
        pytest.param(131_072, 400_000, 8192, id="long"),
        pytest.param(1024, 2000, 128, id="short context"),
        pytest.param(2, 2, 1, id="none"),
        pytest.param(8192, 100, 512, id="few words"),
        pytest.param(8192, 3170, 800, id="some words"),
    ],
)
async def test_a_summary_has_a_part_of_the_context_and_is_no_longer_than_its_conversation(
    far: Far, context_tokens: int, length_bytes: int, most: int
) -> None:
    far.answer = whole(said("So."))
    await compacted(far, far.local(default_generation_settings={"n_ctx": context_tokens}), length_bytes)
    assert far.asked[-1][1]["max_completion_tokens"] == most


async def test_a_far_model_s_context_may_be_told_or_not(far: Far) -> None:
    far.answer = whole(said("So."))
    engine = far.service()
    await compacted(far, engine)
    assert "max_completion_tokens" not in far.asked[-1][1]
    engine.entry = engine.entry.model_copy(update={"context_tokens": 16_384})
    await compacted(far, engine)
    assert far.asked[-1][1]["max_completion_tokens"] == 2048


@pytest.mark.parametrize("content", [None, "", " \n"])
async def test_a_model_that_says_nothing(far: Far, content: str | None) -> None:
    far.answer = whole(said(content, reasoning_content="Let me see."))
    with pytest.raises(InvalidRequest, match="wrote no summary") as refused:
        await compacted(far)
    assert refused.value.param == "input"


async def test_a_service_that_counts_no_tokens_may_be_cut_off(far: Far) -> None:
    far.answer = whole(said("The cat is", "length", None))
    engine = far.service()
    engine.entry = engine.entry.model_copy(update={"context_tokens": 16_384})
    result = await compacted(far, engine)
    assert isinstance(result.value, bytes)
    assert json.loads(result.value)["output"][-1]["summary"] == "The cat is"


@pytest.mark.parametrize(("written", "good"), [(256, True), (128, True), (127, False), (0, False)])
async def test_a_summary_that_was_cut_off(far: Far, written: int, *, good: bool) -> None:
    """By its own limit it may be, and by the context's end if much was said by then."""
    far.answer = whole(said("The cat is", "length", written))
    engine = far.local(default_generation_settings={"n_ctx": 2048})
    if good:
        assert (await compacted(far, engine)).value
        return
    with pytest.raises(InvalidRequest, match=f"leaves {written} tokens") as refused:
        await compacted(far, engine)
    assert (refused.value.code, refused.value.param) == ("context_length_exceeded", "input")


async def test_a_summary_that_found_no_end_says_each_thing_once(far: Far) -> None:
    loop = "- It is seven.\n- It is on port 7.4.\n" * 40
    far.answer = whole(said(f"Otto is a cat. He is old! Otto is a cat.\n\n{loop}- It is", "length", 512))
    result = await compacted(far)
    assert isinstance(result.value, bytes)
    expected = "Otto is a cat. He is old! Otto is a cat.\n\n- It is seven.\n- It is on port 7.4.\n- It is"
    assert json.loads(result.value)["output"][-1]["summary"] == expected


async def test_a_conversation_that_is_too_long(far: Far) -> None:
    far.answer = whole(TOO_LONG, status=400)
    with pytest.raises(UpstreamRefused) as refused:
        await compacted(far)
    assert refused.value.code == "context_length_exceeded"


@pytest.mark.parametrize("body", [b"no json", b"[]", b"{}", b'{"choices": []}'])
async def test_an_answer_that_is_none(far: Far, body: bytes) -> None:
    far.answer = whole(body)
    with pytest.raises(EngineFailed):
        await compacted(far)
