"""Looks at an unfinished image: when they are taken, and where there are none."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from infra.errors import EngineFailed
from tests.tiny_diffusers import FORGIVEN
from workers.engine.drawing import FRAME

pytestmark = [pytest.mark.slow, *(pytest.mark.filterwarnings(warning) for warning in FORGIVEN)]


@pytest.mark.parametrize(
    ("steps", "count", "wanted"),
    [
        (50, 0, set()),
        (50, 1, {25}),
        (50, 2, {16, 33}),
        (51, 3, {12, 25, 38}),
        (4, 3, {1, 2, 3}),
        (3, 3, {1, 2}),
        (2, 2, {1}),
        (1, 3, set()),
    ],
)
def test_they_are_evenly_spaced_and_never_the_last(steps: int, count: int, wanted: set[int]) -> None:
    from workers.engine.runtimes.previews import steps_shown

    assert steps_shown(steps, count) == wanted


def test_each_is_sent_when_it_is_made() -> None:
    from workers.engine.runtimes.previews import Show, in_sequence

    seen = threading.Event()

    def work(show: Show) -> bytes:
        show(b"a")
        assert seen.wait(10)
        show(b"bc")
        return b""

    pieces = in_sequence(work)
    first = next(pieces)
    seen.set()
    assert [first, *pieces] == [FRAME.pack(False, 1) + b"a", FRAME.pack(False, 2) + b"bc", FRAME.pack(True, 0)]


def test_a_failure_comes_after_what_was_shown() -> None:
    from workers.engine.runtimes.previews import Show, in_sequence

    def work(show: Show) -> bytes:
        show(b"a")
        raise EngineFailed("the card's memory does not suffice")

    pieces = in_sequence(work)
    assert next(pieces) == FRAME.pack(False, 1) + b"a"
    with pytest.raises(EngineFailed):
        next(pieces)


def pipe_of(**more: Any) -> Any:
    """What `preview` looks at of a pipeline whose decoder is of the common kind, untrained."""
    from diffusers import AutoencoderKL
    from diffusers.image_processor import VaeImageProcessor

    vae = AutoencoderKL(block_out_channels=(4,), norm_num_groups=4, latent_channels=4)
    return SimpleNamespace(**({"vae": vae, "image_processor": VaeImageProcessor(vae_scale_factor=1)} | more))


def test_where_there_are_none() -> None:
    import torch

    from workers.engine.runtimes.previews import preview

    latents, size = torch.zeros(1, 4, 8, 16), (None, None)
    shown = preview(pipe_of(), latents, size)
    assert shown is not None
    assert shown.size == (16, 8)
    assert preview(pipe_of(safety_checker=object()), latents, size) is None
    assert preview(pipe_of(vae=torch.nn.Linear(1, 1)), latents, size) is None
    assert preview(pipe_of(), torch.zeros(1, 16, 8, 16), size) is None
    assert preview(pipe_of(), torch.zeros(1, 32, 16), size) is None
    halves = pipe_of()
    halves.vae.half()
    assert preview(halves, latents, size) is None
