"""A pipeline of random weights for a whole install, and the same one called directly."""

import base64
from pathlib import Path
from typing import Any

import httpx2
from PIL import Image

from tests.pictures import pixels

MODEL = "tiny-sd"
PROMPT = "a lighthouse in the fog"
ASK: dict[str, Any] = {"model": MODEL, "prompt": PROMPT, "size": "64x64"}
SEED, STEPS = 41, 3
_SIZE: dict[str, Any] = {"width": 64, "height": 64}


def row(folder: Path) -> str:
    """The model in the file of settings."""
    return (
        f'[[model]]\nname = "{MODEL}"\nformat = "diffusers"\npath = "{folder}"\ncapabilities = ["images"]\n'
        "weights_bytes = 600000\n"
    )


class Direct:
    """diffusers in this process, with one thread and generators on the processor; images as their bytes in RGB."""

    def __init__(self, folder: Path) -> None:
        import torch
        from diffusers import AutoPipelineForImage2Image, AutoPipelineForInpainting, AutoPipelineForText2Image

        torch.set_num_threads(1)
        self._text = AutoPipelineForText2Image.from_pretrained(folder)
        self._masked = AutoPipelineForInpainting.from_pipe(self._text)
        self._varied = AutoPipelineForImage2Image.from_pipe(self._text)

    def text(self, seed: int) -> bytes:
        """An image of the prompt."""
        return _drawn(self._text, seed, **_SIZE)

    def masked(self, seed: int, image: Image.Image, mask: Image.Image, strength: float) -> bytes:
        """… within the mask, which is white there."""
        return _drawn(self._masked, seed, image=image, mask_image=mask, strength=strength, **_SIZE)

    def varied(self, seed: int, image: Image.Image) -> bytes:
        """… that is like an image, without a prompt."""
        return _drawn(self._varied, seed, image=image, prompt="")


def _drawn(pipe: Any, seed: int, prompt: str = PROMPT, **more: Any) -> bytes:
    import torch

    pipe.set_progress_bar_config(disable=True)
    generator = torch.Generator("cpu").manual_seed(seed)
    drawn: Image.Image = pipe(prompt=prompt, num_inference_steps=STEPS, generator=generator, **more).images[0]
    return drawn.tobytes()


def good(answer: httpx2.Response) -> Any:
    """The JSON of an answer that must be one."""
    assert answer.status_code == 200, answer.text
    return answer.json()


def decoded(item: Any) -> bytes:
    """An image that came in base64, as its bytes in RGB."""
    return pixels(base64.b64decode(item["b64_json"] if isinstance(item, dict) else item.b64_json))
