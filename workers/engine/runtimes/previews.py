"""Looks at an image while it is drawn: its latents after some of the steps, decoded, each sent on as it is made.

They take nothing from the generator and leave the latents as they are: the finished image is the same with and without.
"""

import queue
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from diffusers import AutoencoderKL
from PIL import Image

from workers.engine.drawing import FRAME
from workers.engine.runtimes.pipelines import Told

Show = Callable[[bytes], None]
"""Sends an image's file on."""


def in_sequence(work: Callable[[Show], bytes]) -> Iterator[bytes]:
    """What `work` shows while it runs, in a thread of its own, and then what it returns; each after its `FRAME`.

    Whatever `work` raises is raised after what it has shown. Whoever stops reading has to stop `work`, too.
    """
    shown: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    threads = ThreadPoolExecutor(1, "drawing")
    try:
        working = threads.submit(work, shown.put)
        working.add_done_callback(lambda _: shown.put(None))
        while (preview := shown.get()) is not None:
            yield FRAME.pack(False, len(preview)) + preview
        finished = working.result()
        yield FRAME.pack(True, len(finished)) + finished
    finally:
        threads.shutdown(wait=False)


def looking(told: Told, look: Callable[[Image.Image], None], sides: tuple[int | None, int | None], count: int) -> Told:
    """What a pipeline calls after each step: `told`, and `look` after at most `count` of them, evenly spaced.

    `sides` are the image's width and height, None where the pipeline decides.
    """

    def after(pipe: Any, step: int, timestep: Any, tensors: dict[str, Any]) -> dict[str, Any]:
        changed = told(pipe, step, timestep, tensors)
        if step + 1 in steps_shown(int(pipe.num_timesteps), count):
            image = preview(pipe, tensors["latents"], sides)
            if image is not None:
                look(image)
        return changed

    return after


def steps_shown(steps: int, count: int) -> set[int]:
    """After which of the steps, from 1, there is a look; never after the last one. Of few steps it may be fewer."""
    return {steps * number // (count + 1) for number in range(1, count + 1)} - {0, steps}


def preview(pipe: Any, latents: Any, sides: tuple[int | None, int | None]) -> Image.Image | None:
    """The image that the latents are so far. None where they cannot be shown: a checker has to see the finished image
    first, or the decoder is not of the kind that these families share.
    """
    vae: Any = getattr(pipe, "vae", None)
    if getattr(pipe, "safety_checker", None) is not None or not _decodes(vae):
        return None
    if latents.ndim == 3 and hasattr(pipe, "_unpack_latents"):
        width, height = (side or pipe.default_sample_size * pipe.vae_scale_factor for side in sides)
        latents = pipe._unpack_latents(latents, height, width, pipe.vae_scale_factor)
    if latents.ndim != 4 or latents.shape[1] != vae.config.latent_channels:
        return None
    scaled = latents.to(vae.dtype) / vae.config.scaling_factor + (getattr(vae.config, "shift_factor", None) or 0)
    with torch.no_grad():
        decoded = vae.decode(scaled, return_dict=False)[0]
    image: Image.Image = pipe.image_processor.postprocess(decoded.detach(), output_type="pil")[0]
    return image


def _decodes(vae: Any) -> bool:
    """Whether the decoder is of the common kind, and good enough as it is; SDXL's own is not in halves."""
    return isinstance(vae, AutoencoderKL) and not (vae.dtype == torch.float16 and vae.config.force_upcast)
