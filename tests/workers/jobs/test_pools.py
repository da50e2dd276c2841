import pytest

from infra.types import HEAD_POOL, PoolId
from workers.jobs.pools import Served, card_template, described, judge
from workers.pools.orders import CARD_TYPE, HEAD_TYPE

CARDS = (PoolId("cpu"), PoolId("cuda-1"))


@pytest.mark.parametrize(
    ("name", "kind", "device", "served"),
    [
        ("head", HEAD_TYPE, None, Served(HEAD_POOL, HEAD_TYPE)),
        ("cpu", CARD_TYPE, "cpu", Served(PoolId("cpu"), CARD_TYPE)),
        ("cpu", CARD_TYPE, "cuda-1", Served(PoolId("cpu"), CARD_TYPE)),
        ("nightly", CARD_TYPE, "cuda-1", Served(PoolId("nightly"), CARD_TYPE, PoolId("cuda-1"))),
    ],
)
def test_pools_that_get_a_worker(name: str, kind: str, device: str | None, served: Served) -> None:
    """The runs of one that an operator made stay on its card; those of a card's own pool go where the router says."""
    judgement = judge(PoolId(name), kind, device, CARDS)
    assert judgement is not None
    assert (judgement.served, judgement.reason) == (served, None)


@pytest.mark.parametrize(
    ("name", "kind", "device", "reason"),
    [
        ("nightly", CARD_TYPE, "cuda-9", "the device cuda-9, which this machine does not have; there are: cpu, cuda-1"),
        (
            "nightly",
            CARD_TYPE,
            None,
            "names no device: set its base job template's variable `device` to one of cpu, cuda-1",
        ),
        ("cuda-2", CARD_TYPE, "cuda-2", "the card cuda-2 is not in this machine now"),
        ("mine", HEAD_TYPE, None, "is called head, and there is one"),
        ("cpu", "process", None, "its name is needed for a pool of the type coderai-card, not process"),
        ("head", "docker", None, "its name is needed for a pool of the type coderai-head, not docker"),
    ],
)
def test_pools_that_get_none_have_a_reason(name: str, kind: str, device: str | None, reason: str) -> None:
    judgement = judge(PoolId(name), kind, device, CARDS)
    assert judgement is not None
    assert judgement.served is None
    assert judgement.reason is not None
    assert reason in judgement.reason


def test_a_pool_of_somebody_elses_type_is_let_alone() -> None:
    assert judge(PoolId("kubernetes"), "kubernetes", None, CARDS) is None


def test_the_remark_comes_and_goes() -> None:
    marked = described("Mine, for the night.", "no such card")
    assert marked == "Mine, for the night.\n\n**Not served**: no such card"
    assert described(marked, "another reason") == "Mine, for the night.\n\n**Not served**: another reason"
    assert described(marked, None) == "Mine, for the night."
    assert described(None, None) == ""
    assert described(described(None, "why"), None) == ""


def test_a_cards_pool_has_its_device() -> None:
    template = card_template(PoolId("cuda-1"))
    assert template["variables"]["properties"]["device"]["default"] == "cuda-1"
    assert template["job_configuration"]["device"] == "{{ device }}"
    assert "default" not in card_template(PoolId("cpu"))["variables"]["properties"].get("command", {})
