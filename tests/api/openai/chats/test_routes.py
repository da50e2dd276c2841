"""Finding stored chat completions again."""

import json
from typing import Any
from urllib.parse import quote

import pytest
from openai import BadRequestError, NotFoundError

from tests.api.openai.chats.conftest import HELLO, Desk, OpenDesk

PATH = "/v1/chat/completions"
UNKNOWN = f"chatcmpl-{0:028x}"
ABSURD = ["x", "chatcmpl-1", "..", "%00", "%F0%9F%98%80", "x" * 3000, "resp_1", "'--", UNKNOWN]
MANY = {f"key {number}": "value" for number in range(17)}
PAIRS = [MANY, {"k" * 65: "v"}, {"k" * 10_000: "v"}, {"k": "v" * 513}]


async def asked(desk: Desk, method: str, path: str, body: bytes = b"", scope: str = "user") -> tuple[int, Any]:
    """Status and JSON."""
    headers = desk.front.headers(scope) | {"Content-Type": "application/json"}
    address = desk.front.url + path
    async with desk.front.session.request(method, address, data=body, headers=headers) as answer:
        return answer.status, json.loads(await answer.read())


async def test_pages(open_desk: OpenDesk) -> None:
    desk = await open_desk()
    ids = [(await desk.made()).id for _ in range(3)]
    await desk.made("node")
    assert await desk.listed() == ids
    assert await desk.listed(order="desc") == ids[::-1]
    first = await desk.client.chat.completions.list(limit=2)
    assert ([each.id for each in first.data], first.has_more) == (ids[:2], True)
    assert [each.id async for each in desk.client.chat.completions.list(limit=1)] == ids
    status, page = await desk.front.get(f"{PATH}?after={ids[1]}")
    assert (status, page["first_id"], page["last_id"], page["has_more"]) == (200, ids[2], ids[2], False)
    assert await desk.listed(after=ids[2]) == []
    assert len(await desk.listed("admin")) == 4


async def test_who_deletes_what_is_listed_reaches_the_end(open_desk: OpenDesk) -> None:
    desk = await open_desk()
    for _ in range(3):
        await desk.made()
    async for each in desk.client.chat.completions.list(limit=1):
        await desk.client.chat.completions.delete(each.id)
    assert await desk.listed() == []


async def test_a_list_by_labels_and_model(open_desk: OpenDesk) -> None:
    desk = await open_desk()
    snow = (await desk.made(metadata={"topic": "snow", "a[b]": "&="})).id
    ice = (await desk.made(metadata={"topic": "ice"})).id
    far = (await desk.made(model="far", metadata={"topic": "snow"})).id
    assert await desk.listed(metadata={"topic": "snow"}) == [snow, far]
    assert await desk.listed(metadata={"topic": "snow", "a[b]": "&="}) == [snow]
    assert await desk.listed(metadata={"topic": "rain"}) == []
    assert await desk.listed(model="tiny") == await desk.listed(model="gpt-4o") == [snow, ice]
    assert await desk.listed(model="far", metadata={"topic": "snow"}) == [far]
    assert await desk.listed(model="nobody") == []


async def test_labels_are_changed_and_cleared(open_desk: OpenDesk) -> None:
    desk = await open_desk()
    made = await desk.made(metadata={"a": "1", "b": "2"})
    changed = await desk.client.chat.completions.update(made.id, metadata={"b": "3"})
    assert (changed.id, changed.metadata) == (made.id, {"b": "3"})
    assert changed.choices == made.choices
    nothing: tuple[dict[str, str] | None, ...] = (None, {})
    for clear in nothing:
        await desk.client.chat.completions.update(made.id, metadata={"b": "3"})
        assert (await desk.client.chat.completions.update(made.id, metadata=clear)).metadata == {}
        assert (await desk.client.chat.completions.retrieve(made.id)).metadata == {}


async def test_what_is_deleted_is_gone(open_desk: OpenDesk) -> None:
    desk = await open_desk()
    made = await desk.made()
    assert await asked(desk, "DELETE", f"{PATH}/{made.id}") == (
        200,
        {"object": "chat.completion.deleted", "id": made.id, "deleted": True},
    )
    for attempt in (
        desk.client.chat.completions.retrieve(made.id),
        desk.client.chat.completions.delete(made.id),
        desk.client.chat.completions.update(made.id, metadata={}),
    ):
        with pytest.raises(NotFoundError):
            await attempt
    assert await desk.listed() == []


async def test_the_messages_of_its_request(open_desk: OpenDesk) -> None:
    desk = await open_desk()
    parts: Any = [{"type": "text", "text": "what?"}, {"type": "image_url", "image_url": {"url": "data:image/png;x"}}]
    call: Any = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages: Any = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": parts, "name": "ann"},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "sunny"},
    ]
    made = await desk.made(model="far", messages=messages)
    path = f"{PATH}/{made.id}/messages"
    status, page = await desk.front.get(path)
    assert (status, page["object"], page["has_more"]) == (200, "list", False)
    system, user, assistant, tool = page["data"]
    assert system == {
        "id": f"{made.id}-0", "role": "system", "content": "Be brief.", "content_parts": None, "name": None,
        "refusal": None,
    }  # fmt: skip
    assert (user["content"], user["content_parts"], user["name"]) == (None, parts, "ann")
    assert (assistant["content"], assistant["tool_calls"]) == (None, [call])
    assert (tool["tool_call_id"], tool["content"], page["last_id"]) == ("c", "sunny", tool["id"])
    _, page = await desk.front.get(f"{path}?limit=1&order=desc&after={tool['id']}")
    assert ([each["id"] for each in page["data"]], page["has_more"]) == ([assistant["id"]], True)
    _, page = await desk.front.get(f"{path}?after={tool['id']}")
    assert (page["data"], page["first_id"], page["last_id"]) == ([], None, None)


async def test_the_client_reads_messages(open_desk: OpenDesk) -> None:
    """Its own type takes an assistant's alone for one."""
    desk = await open_desk()
    said: Any = [{"role": "assistant", "content": text} for text in ("a", "b", "c")]
    made = await desk.made(messages=said)
    found = [each async for each in desk.client.chat.completions.messages.list(made.id, limit=1)]
    assert [(each.id, each.content, each.content_parts) for each in found] == [
        (f"{made.id}-{number}", text, None) for number, text in enumerate(("a", "b", "c"))
    ]


async def test_others_see_nothing_of_it(open_desk: OpenDesk) -> None:
    desk = await open_desk()
    made = await desk.made(metadata={"a": "b"})
    routes = [("GET", ""), ("DELETE", ""), ("POST", ""), ("GET", "/messages")]
    for method, more in routes:
        status, answer = await asked(desk, method, f"{PATH}/{made.id}{more}", b'{"metadata": {}}', "node")
        assert (status, answer["error"]["param"]) == (404, "completion_id")
        async with desk.front.session.request(method, f"{desk.front.url}{PATH}/{made.id}{more}") as refused:
            assert refused.status == 401
    assert await desk.listed("node") == []
    assert (await desk.front.get(PATH, scope=None))[0] == 401
    assert (await desk.clients["admin"].chat.completions.update(made.id, metadata={"a": "c"})).metadata == {"a": "c"}
    assert (await desk.client.chat.completions.retrieve(made.id)).metadata == {"a": "c"}
    await desk.clients["admin"].chat.completions.delete(made.id)
    assert await desk.listed() == []


@pytest.mark.parametrize("absurd", ABSURD)
async def test_an_absurd_id_is_nobody_s(open_desk: OpenDesk, absurd: str) -> None:
    desk = await open_desk()
    for method, more in (("GET", ""), ("DELETE", ""), ("POST", ""), ("GET", "/messages")):
        path = f"{PATH}/{absurd}{more}" if absurd != ".." else f"{PATH}/%2E%2E{more}"
        status, answer = await asked(desk, method, path, b'{"metadata": null}')
        assert status in (404, 405), (method, path, answer)
        assert len(answer["error"]["message"]) < 300


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("limit=0", "limit"),
        ("limit=101", "limit"),
        ("limit=x", "limit"),
        ("order=up", "order"),
        ("after=nobody", "after"),
        ("after=" + "x" * 500, "after"),
        ("after=%00", "after"),
        ("model=" + "x" * 501, "model"),
        *(("&".join(f"metadata[{quote(k)}]={v}" for k, v in pairs.items()), "metadata") for pairs in PAIRS),
    ],
)
async def test_a_list_that_cannot_be(open_desk: OpenDesk, query: str, param: str) -> None:
    desk = await open_desk()
    status, answer = await desk.front.get(f"{PATH}?{query}")
    assert (status, answer["error"]["param"].partition(".")[0]) == (400, param)


async def test_an_unknown_place_to_go_on_from(open_desk: OpenDesk) -> None:
    desk = await open_desk()
    made = await desk.made()
    assert await desk.listed(after=UNKNOWN) == [made.id], "it is as old as nothing is"
    for after in ("nobody", f"{made.id}-1", f"{made.id}--1", UNKNOWN):
        status, answer = await desk.front.get(f"{PATH}/{made.id}/messages?after={after}")
        assert (status, answer["error"]["param"]) == (404, "after")
    for query in ("limit=0", "limit=101", "order=up"):
        status, answer = await desk.front.get(f"{PATH}/{made.id}/messages?{query}")
        assert (status, answer["error"]["param"]) == (400, query.partition("=")[0])


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b"{", None),
        (b"[]", None),
        (b'"x"', None),
        (b"{}", "metadata"),
        (b"", "body"),
        (b'{"metadata": 1}', "metadata"),
        (b'{"metadata": {"a": 1}}', "metadata"),
        (b'{"metadata": {"a": null}}', "metadata"),
        (b'{"metadata": {}, "model": "x"}', "model"),
        *((json.dumps({"metadata": pairs}).encode(), "metadata") for pairs in PAIRS),
    ],
)
async def test_labels_that_cannot_be(open_desk: OpenDesk, body: bytes, param: str | None) -> None:
    desk = await open_desk()
    made = await desk.made(metadata={"a": "b"})
    status, answer = await asked(desk, "POST", f"{PATH}/{made.id}", body)
    assert status == 400
    assert (answer["error"]["param"] or "").partition(".")[0] == (param or "").replace("body", "")
    assert (await desk.client.chat.completions.retrieve(made.id)).metadata == {"a": "b"}


@pytest.mark.parametrize("pairs", [*PAIRS, {"a": 1}, {"a": None}, [], "x"])
async def test_a_chat_with_labels_that_cannot_be_is_not_asked(open_desk: OpenDesk, pairs: Any) -> None:
    desk = await open_desk()
    for model in ("tiny", "far"):
        with pytest.raises(BadRequestError) as refused:
            await desk.made(model=model, metadata=pairs)
        assert str(refused.value.param).startswith("metadata")
        assert len(str(refused.value.param)) < 300
    assert desk.engine.asked == []
    status, answer = await desk.front.post(PATH, {"model": "tiny", "messages": HELLO, "store": "yes"})
    assert (status, answer["error"]["param"]) == (400, "store")


async def test_sixteen_long_pairs_are_not_too_much(open_desk: OpenDesk) -> None:
    desk = await open_desk()
    pairs = {f"{number:064}": "v" * 512 for number in range(16)}
    made = await desk.made(metadata=pairs)
    assert (await desk.client.chat.completions.retrieve(made.id)).metadata == pairs
    assert await desk.listed(metadata=dict(list(pairs.items())[:4])) == [made.id]
