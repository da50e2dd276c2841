"""What the cases came to, and what was left out on purpose. Pure."""

from collections import Counter
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class CaseResult:
    """One case of the suite; `requests` are those that the server answered, e.g. `POST /v1/embeddings 200`."""

    id: str
    outcome: Literal["passed", "failed", "skipped"]
    requests: tuple[str, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The count. Only cases whose request reached the server are in `reached`; the rest proves nothing about us."""

    collected: int
    reached: int
    passed: int
    failed: tuple[CaseResult, ...]
    excluded: tuple[CaseResult, ...]
    unsent: tuple[CaseResult, ...]
    """Passed or skipped without any request that the server answered: not counted."""
    stale: tuple[str, ...]
    """Exclusions that have no ground: of a case that passes, or that is not in the suite."""

    @property
    def good(self) -> bool:
        """Nothing failed, every exclusion is needed, and there was something to judge."""
        return not self.failed and not self.stale and self.passed > 0


def parse_exclusions(text: str) -> dict[str, str]:
    """Test ids with their reasons, from lines of the form `id  # reason`; blank lines and comment lines are skipped.

    Raises:
        ValueError: a line without a reason, or an id that stands twice.
    """
    exclusions: dict[str, str] = {}
    for line in map(str.strip, text.splitlines()):
        if not line or line.startswith("#"):
            continue
        test_id, _, reason = (part.strip() for part in line.partition(" # "))
        if not reason:
            raise ValueError(f"{line!r} gives no reason: write `<test id> # <reason>`")
        if test_id in exclusions:
            raise ValueError(f"{test_id} stands twice")
        exclusions[test_id] = reason
    return exclusions


def judge(results: list[CaseResult], exclusions: dict[str, str]) -> Verdict:
    """Sort the cases into counts."""
    excluded = [each for each in results if each.id in exclusions]
    kept = [each for each in results if each.id not in exclusions]
    known = {each.id for each in results}
    counted = [each for each in kept if each.requests and each.outcome == "passed"]
    failed = [each for each in kept if each.outcome == "failed"]
    needless = [each.id for each in excluded if each.outcome == "passed" and each.requests]
    return Verdict(
        collected=len(results),
        reached=sum(1 for each in results if each.requests),
        passed=len(counted),
        failed=tuple(failed),
        excluded=tuple(excluded),
        unsent=tuple(each for each in kept if not each.requests and each.outcome != "failed"),
        stale=(*needless, *(test_id for test_id in exclusions if test_id not in known)),
    )


def describe(verdict: Verdict, exclusions: dict[str, str]) -> str:
    """The verdict in lines for people."""
    lines = [f"excluded  {case.id}: {exclusions[case.id]}" for case in verdict.excluded]
    lines += [f"stale     {test_id}: it passes or does not exist; take it out" for test_id in verdict.stale]
    for case in verdict.failed:
        answered = ", ".join(case.requests) or "no request reached the server"
        lines.append(f"FAILED    {case.id}\n          {answered}\n          {' '.join(case.reason.split())[:400]}")
    lines.append(_per_route(verdict))
    lines.append(
        f"collected {verdict.collected}, reached the server {verdict.reached}: passed {verdict.passed}, "
        f"failed {len(verdict.failed)}, excluded {len(verdict.excluded)}; "
        f"not counted, for they send nothing: {len(verdict.unsent)}"
    )
    return "\n".join(lines)


def _per_route(verdict: Verdict) -> str:
    counts = Counter(request for case in verdict.failed for request in case.requests)
    return "\n".join(f"answer in failed cases: {request} ({times} times)" for request, times in counts.most_common(20))
