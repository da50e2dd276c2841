"""Hub ids become files to download, by a real server that speaks a hub's API."""

import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from infra.downloads import download
from infra.egress import Egress
from infra.errors import InvalidRequest
from infra.hub import HubFile, choose_gguf, gguf_files, has_gguf, is_hub_id, split_hub_id
from infra.hub_api import HubApi, Listing
from infra.types import HubId
from tests.hub import Hub, running_hub

EGRESS = Egress(allow_private=True)
REPO = HubId("a/b")
WEIGHTS = b"hello" * 1000


@pytest.fixture
async def hub() -> AsyncIterator[Hub]:
    files = {"README.md": b"x", "q/tiny-Q4_K_M.gguf": WEIGHTS, "tiny-Q8_0.gguf": b"other", "mmproj-F16.gguf": b"x"}
    async with running_hub(files) as running:
        yield running


async def files_of(hub: Hub, name: str) -> tuple[HubFile, ...]:
    return gguf_files(HubId(name), await HubApi(hub.url, EGRESS).list_files("own/repo"))


async def test_an_id_becomes_a_verified_file(hub: Hub, tmp_path: Path) -> None:
    (file,) = await files_of(hub, "own/repo")
    assert file.name == "tiny-Q4_K_M.gguf"
    assert (file.source.sha256, file.source.size_bytes) == (hashlib.sha256(WEIGHTS).hexdigest(), len(WEIGHTS))
    await download(file.source, tmp_path / file.name, EGRESS)
    assert (tmp_path / "tiny-Q4_K_M.gguf").read_bytes() == WEIGHTS
    (other,) = await files_of(hub, "own/repo:q8_0")
    assert other.name == "tiny-Q8_0.gguf"


def test_which_repositories_have_a_gguf() -> None:
    def listing(*names: str) -> Listing:
        return Listing("a/b", "main", "http://x", dict.fromkeys(names))  # type: ignore[arg-type]

    assert has_gguf(listing("README.md", "q/a-Q4_K_M.gguf"))
    assert not has_gguf(listing("model.safetensors", "mmproj-F16.gguf", "config.json"))


@pytest.mark.parametrize(
    "bad", ["", "tiny", "a/b/c", "../b", "a/..", "a/b:", "a/b?x", "a/b:Q4/x", "a b/c", "http://a/b"]
)
def test_what_is_no_id(bad: str) -> None:
    assert not is_hub_id(bad)
    with pytest.raises(InvalidRequest):
        split_hub_id(HubId(bad))


def test_the_quantisation_is_a_word_of_its_own() -> None:
    paths = ["m-Q4_K.gguf", "m-Q4_K_M.gguf", "m-Q4_K_S.gguf", "m.IQ4_XS.gguf"]
    assert choose_gguf(REPO, paths, None) == ("m-Q4_K_M.gguf",)
    assert choose_gguf(REPO, paths, "q4_k") == ("m-Q4_K.gguf",)
    assert choose_gguf(REPO, paths, "IQ4_XS") == ("m.IQ4_XS.gguf",)
    assert choose_gguf(REPO, ["only-F16.gguf", "mmproj-only.gguf"], None) == ("only-F16.gguf",)
    with pytest.raises(
        InvalidRequest, match=r"no model of Q6_K is there.*There is: m-Q4_K, m-Q4_K_M, m-Q4_K_S, m\.IQ4_XS"
    ):
        choose_gguf(REPO, paths, "Q6_K")
    with pytest.raises(InvalidRequest, match="no model of Q4_K_M is there"):
        choose_gguf(REPO, ["m-Q5_0.gguf", "m-Q8_0.gguf"], None)
    with pytest.raises(InvalidRequest, match="no model of Q6_K is there"):
        choose_gguf(REPO, ["only-F16.gguf"], "Q6_K")
    with pytest.raises(InvalidRequest, match="several models match"):
        choose_gguf(REPO, ["a-Q4_K_M.gguf", "b-Q4_K_M.gguf"], None)
    with pytest.raises(InvalidRequest, match="no GGUF"):
        choose_gguf(REPO, ["model.safetensors", "mmproj-F16.gguf", "evil\n.gguf"], None)


def test_a_split_model_is_all_its_parts() -> None:
    parts = [f"Q4_K_M/m-Q4_K_M-0000{n}-of-00003.gguf" for n in (3, 1, 2)]
    assert choose_gguf(REPO, [*parts, "m-Q8_0.gguf"], None) == tuple(sorted(parts))
    with pytest.raises(InvalidRequest, match="2 of its 3 parts"):
        choose_gguf(REPO, parts[:2], None)


def test_a_name_that_leads_out_of_the_folder_is_no_choice() -> None:
    with pytest.raises(InvalidRequest, match="no GGUF"):
        choose_gguf(REPO, ["../../m-Q4_K_M.gguf", "x/.hidden-Q4_K_M.gguf"], None)
