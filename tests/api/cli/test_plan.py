"""`coderai plan` against a running front."""

import json
from pathlib import Path

import pytest

from infra.errors import CoderAIError, InvalidRequest
from tests.api.cli.conftest import Run, beside, owner_of
from tests.api.conftest import StartFront

CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}


async def test_a_plan_from_a_file_and_from_standard_input(
    start_front: StartFront, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    front = await start_front()
    owner_of(front, monkeypatch)
    file = tmp_path / "request.json"
    file.write_text(json.dumps(CHAT))
    shown = await beside("plan", "--request", str(file))
    assert shown.exit_code == 0, shown.output
    answer = json.loads(shown.stdout)
    assert answer["plan"]["flow"] == "chat"
    assert answer["placements"][0]["placement"]["pool"] == "cpu"
    again = await beside(
        "plan", "--request", "-", "--endpoint", "completions", stdin='{"model": "tiny", "prompt": "x"}'
    )
    assert json.loads(again.stdout)["plan"]["flow"] == "completions"
    assert front.children.started == []


async def test_the_front_s_refusal_is_passed_on(start_front: StartFront, monkeypatch: pytest.MonkeyPatch) -> None:
    owner_of(await start_front(), monkeypatch)
    result = await beside("plan", "--request", "-", "--endpoint", "dance", stdin=json.dumps(CHAT))
    assert isinstance(result.exception, CoderAIError)
    assert "there is no endpoint 'dance'" in result.exception.message


@pytest.mark.parametrize("text", ["", "{", "hello"])
def test_what_is_no_request(run: Run, tmp_path: Path, text: str) -> None:
    file = tmp_path / "request.json"
    file.write_text(text)
    with pytest.raises(InvalidRequest, match="is no JSON request"):
        run("plan", "--request", str(file))
    with pytest.raises(InvalidRequest, match="is no JSON request"):
        run("plan", "--request", str(tmp_path / "missing"))
