"""What a person sees of a run."""

import time
from datetime import datetime
from typing import Any

from rich.console import Console, RenderableType

from api.cli.run_display import plain, run_details, runs_table

RUN: dict[str, Any] = {
    "id": "12345678-1234-4234-8234-123456789abc",
    "status": "failed",
    "flow": "chat",
    "model": "tiny",
    "key": "ann",
    "lane": "job",
    "created_at": 1_700_000_000.0,
    "started_at": 1_700_000_001.0,
    "ended_at": 1_700_000_003.5,
    "duration_s": 2.5,
    "error": "it said [bold]no[/bold]\x1b]0;title\x07",
    "run_count": 2,
    "usage": {"prompt_tokens": 12, "completion_tokens": 3, "cached_tokens": 4, "total_tokens": 15, "units": 0.0},
    "answer_url": None,
    "flow_url": "/flows/runs/flow-run/12345678",
    "steps": [],
    "report": None,
    "log": [],
}


def rendered(shown: RenderableType, width_chars: int = 200) -> str:
    console = Console(width=width_chars, color_system=None)
    with console.capture() as captured:
        console.print(shown)
    return captured.get()


def test_a_list() -> None:
    text = rendered(runs_table([RUN, RUN | {"model": None, "key": None, "error": None, "duration_s": None}], 200))
    first, second = [line for line in text.splitlines() if "12345678" in line]
    assert [cell.strip() for cell in first.split("│")][1:6] == ["12345678", "failed", "chat", "tiny", "ann"]
    assert "[bold]no[/bold]" in first
    assert "\x1b" not in text
    assert "tiny" not in second


def test_a_narrow_terminal_folds() -> None:
    text = rendered(runs_table([RUN], 60), 60)
    assert "…" not in text
    assert max(len(line) for line in text.splitlines()) <= 60


def test_what_names_a_run_can_be_copied_on_every_terminal() -> None:
    now_s = time.time()
    names = {"status": "cancelling", "flow": "embeddings", "model": "qwen2.5-coder-0.5b-instruct", "key": "somebody"}
    text = rendered(runs_table([RUN | names | {"started_at": now_s, "duration_s": 1234.56}], 80), 80)
    (line,) = [line for line in text.splitlines() if "12345678" in line]
    assert f"{datetime.fromtimestamp(now_s):%H:%M:%S}" in line
    assert all(word in line for word in ("cancelling", "1234.56"))


def test_another_day_is_named() -> None:
    assert "2023-11-1" in rendered(runs_table([RUN], 80), 80)


def test_one_run() -> None:
    text = rendered(run_details(RUN | {"answer_url": "/v1/runs/1/answer"}, "http://h:1"))
    assert RUN["id"] in text
    assert "chat of tiny for the key ann, job lane" in text
    assert "after 2.50 s" in text
    assert "2 times" in text
    assert "12 prompt (4 cached), 3 completion" in text
    assert "[bold]no[/bold]" in text
    assert "http://h:1/flows/runs/flow-run/12345678" in text
    assert "http://h:1/v1/runs/1/answer" in text


def test_placements_stand_in_for_the_report() -> None:
    attempt = {
        "pool": "cpu",
        "engine": "cpu/tiny",
        "reason": "least busy",
        "passed_over": [],
        "started_at": 1.0,
        "ended_at": 1.5,
        "error": None,
    }
    step = {"step": "generate", "status": "completed", "started_at": 1.0, "ended_at": 1.5, "error": None}
    report = "| step | where |\n| --- | --- |\n| generate | elsewhere |"
    both = RUN | {"report": report, "steps": [step | {"attempts": [attempt]}]}
    assert "least busy" in rendered(run_details(both, ""))
    assert "elsewhere" not in rendered(run_details(both, ""))
    alone = RUN | {"report": report, "steps": [step | {"attempts": []}]}
    assert "elsewhere" in rendered(run_details(alone, ""))
    assert "0.50" in rendered(run_details(alone, ""))


def test_the_log() -> None:
    line = {"at": 1_700_000_001.0, "level": 20, "message": "placed \x1b[31mthere"}
    text = rendered(run_details(RUN | {"log": [line]}, ""))
    assert "placed  [31mthere" in text


def test_nothing_steers_the_terminal() -> None:
    assert plain("a\x1b[2Jb\x9bc\r\x07\u202ed\ne").plain == "a [2Jb c   d\ne"
    assert plain(None).plain == ""


def test_how_far_it_is() -> None:
    progress = {"phase": "denoising", "current": 3, "total": 20, "pct": 15.0, "it_per_s": 0.5, "elapsed": 6.0}
    text = rendered(run_details(RUN | {"status": "running", "ended_at": None, "progress": progress}, "http://x"))
    assert "denoising: 3 of 20 (15 %), 0.50 it/s" in text


def test_what_it_used_is_told_in_the_flows_own_words() -> None:
    assert "12 prompt (4 cached), 3 completion" in rendered(run_details(RUN, "http://x"))
    pages = RUN["usage"] | {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0, "units": 3.0}
    text = rendered(run_details(RUN | {"flow": "ocr", "usage": pages}, "http://x"))
    assert any(line.split() == ["pages", "read", "3"] for line in text.splitlines())
    assert "prompt" not in text
    assert "units" in rendered(run_details(RUN | {"flow": "batch", "usage": pages}, "http://x"))
