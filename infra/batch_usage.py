"""What the answers of a batch have used, added up: whatever OpenAI's shape of usage each of them has."""

from dataclasses import dataclass, field

from infra.types import Frozen, Json


class CachedTokens(Frozen):
    """Of the tokens that were read."""

    cached_tokens: int = 0


class ReasoningTokens(Frozen):
    """Of the tokens that were written."""

    reasoning_tokens: int = 0


class BatchUsage(Frozen):
    """OpenAI's usage of a batch, in tokens."""

    input_tokens: int = 0
    input_tokens_details: CachedTokens = CachedTokens()
    output_tokens: int = 0
    output_tokens_details: ReasoningTokens = ReasoningTokens()
    total_tokens: int = 0


@dataclass(slots=True)
class Spent:
    """The sum so far; `model` is that of the first answer that names one."""

    model: str | None = None
    usage: BatchUsage = field(default_factory=BatchUsage)

    def add(self, result: Json) -> None:
        """Count one line of the results: one without an answer, or whose answer tells no usage, adds nothing."""
        answer = _inner(_inner(result, "response"), "body")
        model, told = answer.get("model"), _inner(answer, "usage")
        if self.model is None and isinstance(model, str):
            self.model = model
        read = _count(told, "prompt_tokens", "input_tokens")
        written = _count(told, "completion_tokens", "output_tokens")
        cached = _inner(told, "prompt_tokens_details") or _inner(told, "input_tokens_details")
        reasoned = _inner(told, "completion_tokens_details") or _inner(told, "output_tokens_details")
        before = self.usage
        self.usage = BatchUsage(
            input_tokens=before.input_tokens + read,
            input_tokens_details=CachedTokens(
                cached_tokens=before.input_tokens_details.cached_tokens + _count(cached, "cached_tokens")
            ),
            output_tokens=before.output_tokens + written,
            output_tokens_details=ReasoningTokens(
                reasoning_tokens=before.output_tokens_details.reasoning_tokens + _count(reasoned, "reasoning_tokens")
            ),
            total_tokens=before.total_tokens + read + written,
        )


def _inner(value: Json, name: str) -> dict[str, Json]:
    found = value.get(name) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}


def _count(told: dict[str, Json], *names: str) -> int:
    """The first of these counts that is there."""
    return next((count for name in names if isinstance(count := told.get(name), int)), 0)
