"""A request becomes a flow run's parameter, and is found again, or the run says why not."""

from pathlib import Path

import orjson
import pytest

from infra.blobs import Blobs
from infra.errors import InvalidRequest, PayloadGone
from infra.requests import INLINE_BYTES, blob_parameter, gone, make_parameter, resolve
from infra.types import Json

SMALL: dict[str, Json] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


def test_a_small_request_stands_there_itself(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path)
    parameter = make_parameter(SMALL, blobs)
    assert parameter == SMALL
    assert list(tmp_path.iterdir()) == []
    assert resolve(parameter, [blobs]) == SMALL


def test_the_limit_is_64_kib_of_json(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path)
    largest: dict[str, Json] = {"x": "y" * (INLINE_BYTES - len('{"x":""}'))}
    assert make_parameter(largest, blobs) == largest
    assert list(make_parameter({"x": largest["x"], "z": 1}, blobs)) == ["$blob"]


def test_a_large_request_is_found_in_any_of_the_stores(tmp_path: Path) -> None:
    payloads, jobs = Blobs(tmp_path / "payloads"), Blobs(tmp_path / "jobs")
    parameter = make_parameter(SMALL, payloads, inline_bytes=0)
    assert parameter == {"$blob": payloads.put(orjson.dumps(SMALL))}
    assert resolve(parameter, [jobs, payloads]) == SMALL
    with pytest.raises(PayloadGone, match="not kept any more"):
        resolve(parameter, [jobs])


def test_a_client_cannot_write_a_reference(tmp_path: Path) -> None:
    """A request that looks like a reference to somebody else's comes back as what it is."""
    blobs = Blobs(tmp_path)
    others = blobs.put(orjson.dumps({"secret": 1}))
    for forged in ({"$blob": others}, {"$blob": others, "model": "m"}, {"$gone": "x"}, {"$later": 1}):
        request: dict[str, Json] = dict(forged)
        parameter = make_parameter(request, blobs)
        assert list(parameter) == ["$blob"]
        assert resolve(parameter, [blobs]) == request


@pytest.mark.parametrize(
    "value", [{"$ref": "#/$defs/a"}, {"__prefect_kind": "jinja", "template": "{{ 1 }}"}, "a\0b", "__prefect"]
)
def test_what_prefect_would_take_for_its_own_is_never_inline(tmp_path: Path, value: Json) -> None:
    blobs = Blobs(tmp_path)
    request: Json = {"tools": [value]}
    parameter = make_parameter(request, blobs)
    assert set(parameter) == {"$blob"}
    assert resolve(parameter, [blobs]) == request


def test_a_reference_is_one_key_alone(tmp_path: Path) -> None:
    parameter: dict[str, Json] = {"$blob": "sha256:" + "0" * 64, "model": "m"}
    assert resolve(parameter, [Blobs(tmp_path)]) == parameter


@pytest.mark.parametrize("request_", [None, [], "text", 1])
def test_only_an_object_is_a_request(tmp_path: Path, request_: Json) -> None:
    with pytest.raises(InvalidRequest):
        make_parameter(request_, Blobs(tmp_path))


def test_a_run_whose_request_is_gone_says_why(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path)
    with pytest.raises(PayloadGone, match="requests are not kept here"):
        resolve(gone("requests are not kept here."), [blobs])


@pytest.mark.parametrize("ref", ["../../etc/passwd", "sha256:" + "0" * 64, None, 7, {"$blob": "x"}])
def test_what_an_operator_types_as_a_reference_reaches_nothing(tmp_path: Path, ref: Json) -> None:
    with pytest.raises(PayloadGone):
        resolve({"$blob": ref}, [Blobs(tmp_path)])


@pytest.mark.parametrize("content", [b"[]", b"\xff\x00audio", b"", b"[" * 5000])
def test_a_blob_that_is_no_request(tmp_path: Path, content: bytes) -> None:
    blobs = Blobs(tmp_path)
    with pytest.raises(PayloadGone, match="no request"):
        resolve({"$blob": blobs.put(content)}, [blobs])


def test_a_number_of_more_than_64_bits_comes_back_as_the_front_reads_it(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path)
    text = b'{"seed": 123456789012345678901234567890}'
    assert resolve(blob_parameter(blobs.put(text)), [blobs]) == orjson.loads(text)
    assert make_parameter({"n": [2**64, 1]}, blobs) == {"n": [2.0**64, 1]}


@pytest.mark.parametrize("levels", [300, 1000])
def test_a_request_that_is_nested_too_deeply_is_refused(tmp_path: Path, levels: int) -> None:
    deep: Json = 2**70
    for _ in range(levels):
        deep = [deep]
    with pytest.raises(InvalidRequest, match="too deeply"):
        make_parameter({"a": deep}, Blobs(tmp_path))


def test_a_blob_s_parameter_checks_the_form(tmp_path: Path) -> None:
    ref = Blobs(tmp_path).put(b"{}")
    assert blob_parameter(ref) == {"$blob": ref}
    with pytest.raises(InvalidRequest):
        blob_parameter("../x")
