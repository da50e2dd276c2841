"""A request's input as it is stored and listed."""

from typing import Any

from api.openai.responses.items import kept_items


def test_a_text_becomes_a_message() -> None:
    (item,) = kept_items("hi")
    assert str(item.pop("id")).startswith("msg_")
    assert item == {
        "type": "message",
        "role": "user",
        "status": "completed",
        "content": [{"type": "input_text", "text": "hi"}],
    }


def test_every_kind_has_an_id_and_a_status() -> None:
    items = kept_items(
        [
            {"role": "assistant", "content": "hello"},
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}", "id": "fc_1"},
            {"type": "function_call_output", "call_id": "c", "output": "x"},
            {"type": "reasoning"},
        ]
    )
    assert [str(item["id"]).split("_")[0] for item in items] == ["msg", "fc", "fco", "rs"]
    assert {item["status"] for item in items} == {"completed"}
    assert items[0]["content"] == [{"type": "output_text", "text": "hello", "annotations": [], "logprobs": []}]
    assert (items[1]["id"], items[3]["summary"]) == ("fc_1", [])


def test_a_compaction_is_kept_sealed_and_has_no_status() -> None:
    given: Any = [
        {"type": "compaction", "encrypted_content": "gAAA"},
        {"type": "compaction", "encrypted_content": "b", "id": "cmp_7"},
    ]
    first, second = kept_items(given)
    assert str(first.pop("id")).startswith("cmp_")
    assert first == given[0]
    assert second == given[1]


def test_two_of_one_id_get_ids_of_their_own() -> None:
    one: Any = {"type": "message", "role": "user", "content": "hi", "id": "msg_1"}
    items = kept_items([one, one])
    assert items[0]["id"] == "msg_1"
    assert items[1]["id"] != "msg_1"
