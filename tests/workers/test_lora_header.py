"""What is a LoRA adapter, told from what only looks like one or is made to hurt."""

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.errors import InvalidRequest
from tests.tiny_loras import PAIR, safetensors, with_header
from workers.lora_header import MAX_HEADER_BYTES, LoraFacts, LoraHeader

GOOD = safetensors()


def read(data: bytes, piece_bytes: int = 1 << 20) -> LoraFacts:
    header = LoraHeader()
    for at in range(0, len(data), piece_bytes):
        header.feed(data[at : at + piece_bytes])
    return header.finish()


@pytest.mark.parametrize("piece_bytes", [1, 7, 8, 9, 100, 1 << 20])
def test_pieces_of_any_size_are_one_file(piece_bytes: int) -> None:
    assert read(GOOD, piece_bytes) == LoraFacts(rank=4, layers=1)


SPELLINGS: list[tuple[str, str]] = [
    ("transformer.x.lora_A.weight", "transformer.x.lora_B.weight"),
    ("base_model.model.x.lora_A.default.weight", "base_model.model.x.lora_B.default.weight"),
    ("lora_unet_down_blocks_0_to_q.lora_down.weight", "lora_unet_down_blocks_0_to_q.lora_up.weight"),
    ("unet.x.to_q_lora.down.weight", "unet.x.to_q_lora.up.weight"),
    ("text_encoder.x.lora_linear_layer.down.weight", "text_encoder.x.lora_linear_layer.up.weight"),
    ("x.to_k.lora.down.weight", "x.to_k.lora.up.weight"),
]


@pytest.mark.parametrize(("down", "up"), SPELLINGS)
def test_every_spelling_of_a_pair_is_known(down: str, up: str) -> None:
    assert read(safetensors({down: (16, 8), up: (8, 16)}, format="pt")) == LoraFacts(rank=16, layers=1)


def test_a_convolution_and_an_alpha_may_be_in_it() -> None:
    shapes = {"a.lora_down.weight": (2, 4, 3, 3), "a.lora_up.weight": (4, 2, 1, 1), "a.alpha": ()}
    assert read(safetensors(shapes)) == LoraFacts(rank=2, layers=1)


WHOLE_MODEL = {"model.diffusion_model.input_blocks.0.weight": (4, 4)}
LOHA = {"lora_unet_a.hada_w1_a": (4, 4)}
FILES: list[tuple[bytes, str]] = [
    (b"", "after 0 bytes"),
    (b"\x10", "ends within its header"),
    (GOOD[:20], "ends within its header"),
    (GOOD[:-1], "cut off"),
    (GOOD + b"x", "more bytes"),
    (b"PK\x03\x04" + b"\0" * 100, "can run code"),
    (b"\x80\x02}q\x00." + b"\0" * 100, "can run code"),
    (b"\x80\x04.", "can run code"),
    (b"<!DOCTYPE html><html></html>" * 5, "web page"),
    (b"version https://git-lfs.github.com/spec/v1\n" * 3, "LFS"),
    (b"GGUF" + b"\0" * 100, "GGUF"),
    (struct.pack("<Q", 2**63) + b"{}" * 50, "a header of 9223372036854775808 bytes"),
    (struct.pack("<Q", MAX_HEADER_BYTES + 1) + b"{}" * 50, "the most"),
    (struct.pack("<Q", 0) + b"{}" * 50, "a header of 0 bytes"),
    (struct.pack("<Q", 50) + b"{" * 100, "not JSON"),
    (with_header(list(range(100))), "no JSON object"),
    (with_header({"__metadata__": {"padding": "x" * 50}}), "no pair"),
    (safetensors(WHOLE_MODEL), "no part of a LoRA"),
    (safetensors(LOHA), "no part of a LoRA"),
    (safetensors({"unet.a.lora_A.weight": (4, 8)}), "one half"),
    (safetensors({"unet.a.lora_A.weight": (0, 8), "unet.a.lora_B.weight": (8, 0)}), "no rank"),
    (safetensors({"unet.a.lora_A.weight": (2**40, 0), "unet.a.lora_B.weight": (0, 2**40)}), "no rank"),
    (safetensors({"unet.a.lora_A.weight": (4, 8), "unet.a.lora_B.weight": (8, 2)}), "no rank"),
    (safetensors({"unet.a.lora_A.weight": (9000, 1), "unet.a.lora_B.weight": (1, 9000)}), "no rank"),
    (safetensors({"unet.a.lora_A.weight": (4,), "unet.a.lora_B.weight": (8, 4)}), "no rank"),
    (safetensors({"((.+)+)+X.lora_A.weight": (4, 8), "((.+)+)+X.lora_B.weight": (8, 4)}), "no name"),
    (safetensors({**PAIR, "unet.(a|a)*.alpha": ()}), "no name"),
]


@pytest.mark.parametrize(("data", "why"), FILES)
@pytest.mark.parametrize("piece_bytes", [1, 1 << 20])
def test_what_is_none_is_refused(data: bytes, why: str, piece_bytes: int) -> None:
    with pytest.raises(InvalidRequest, match=why) as refused:
        read(data, piece_bytes)
    assert (refused.value.param, refused.value.code) == ("file", "not_a_lora")


def fields(**more: Any) -> dict[str, Any]:
    good = {"dtype": "F16", "shape": [4, 8], "data_offsets": [0, 64]} | more
    other = {"dtype": "F16", "shape": [8, 4], "data_offsets": [64, 128]}
    return dict(zip(PAIR, (good, other), strict=True))


TENSORS: list[tuple[dict[str, Any], str]] = [
    (fields(dtype="F17"), "unknown type"),
    (fields(dtype=4), "no dtype"),
    (fields(shape="4x8"), "no dtype, shape"),
    (fields(shape=[4, -8]), "shape"),
    (fields(shape=[4.0, 8]), "shape"),
    (fields(shape=[True, 32]), "shape"),
    (fields(shape=[1] * 9), "shape"),
    (fields(shape=[2**40, 2**40]), "place"),
    (fields(data_offsets=[0, 63]), "place"),
    (fields(data_offsets=[64, 0]), "place"),
    (fields(data_offsets=[-64, 0]), "place"),
    (fields(data_offsets=[0]), "no dtype, shape"),
    (fields(data_offsets=[64, 128]), "overlap"),
    (fields(data_offsets=[2**60, 2**60 + 64]), "gaps"),
    ({**fields(), "unet.b.alpha": None}, "no dtype, shape"),
]


@pytest.mark.parametrize(("header", "why"), TENSORS)
def test_a_tensor_lies_where_it_says_and_nowhere_else(header: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidRequest, match=why):
        read(with_header(header, b"\0" * 128))


def test_a_bomb_is_told_by_its_first_bytes() -> None:
    header = LoraHeader()
    with pytest.raises(InvalidRequest, match="a header of"):
        header.feed(struct.pack("<Q", 2**40) + b"{" * 20)


@given(st.binary(max_size=300), st.integers(0, 200))
def test_whatever_comes_is_refused_and_breaks_nothing(junk: bytes, at: int) -> None:
    data = GOOD[:at] + junk
    if data == GOOD:
        return
    with pytest.raises(InvalidRequest):
        read(data)
