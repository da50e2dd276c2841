"""A pytest plugin that notes, for each case of a suite that knows nothing of us, which requests reached the server.

Loaded with `-p coderai_reached` inside the suite's own venv, so it imports nothing of ours. The counting proxy between
client and server is asked after every case; `CODERAI_REACHED_URL` names its ledger, `CODERAI_REACHED_FILE` the file
that gets one line of JSON a case.
"""

import json
import os
import urllib.request
from collections.abc import Generator
from pathlib import Path

import pytest

_LEDGER_URL = os.environ["CODERAI_REACHED_URL"]  # noqa: TID251 - this runs in another project's process
_FILE = Path(os.environ["CODERAI_REACHED_FILE"])  # noqa: TID251
_reports: dict[str, list[pytest.TestReport]] = {}


def _take_ledger() -> list[str]:
    with urllib.request.urlopen(_LEDGER_URL, timeout=30) as answer:
        taken: list[str] = json.load(answer)
        return taken


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Keep what the case's phases came to."""
    _reports.setdefault(report.nodeid, []).append(report)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Run one case between two readings of the ledger, and write its line."""
    _take_ledger()
    result = yield
    reports = _reports.pop(item.nodeid, [])
    failed = [report for report in reports if report.failed]
    skipped = any(report.skipped for report in reports)
    line = {
        "id": item.nodeid,
        "outcome": "failed" if failed else "skipped" if skipped else "passed",
        "requests": _take_ledger(),
        "reason": _reason(failed[0]) if failed else "",
    }
    with _FILE.open("a") as file:
        file.write(json.dumps(line) + "\n")
    return result


def _reason(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    return str(getattr(crash, "message", report.longreprtext))[:600]
