"""One file of a far service: inline, or at an address; and whatever else it may say."""

import asyncio
import gzip
from collections.abc import AsyncIterator

import pytest
from aiohttp.test_utils import TestServer

from infra.errors import EngineFailed, UpstreamRefused
from tasks import far_files
from tasks.far_files import make_far
from tasks.types import TaskCall
from tests.far_service import KEY, PICTURE, FarService, far_engine
from workers import transport
from workers.transport import Transport

pytestmark = pytest.mark.enable_socket
PATH, FORM = "/images/generations", "b64_json"
PATHS = (PATH, "/images/edits")
SENT = {"prompt": "a fox", "n": 1, "model": "dall-e-3", "response_format": FORM}


@pytest.fixture
def far() -> FarService:
    return FarService()


@pytest.fixture
async def call(far: FarService) -> AsyncIterator[TaskCall]:
    client = Transport()
    async with TestServer(far.app(), host="127.0.0.1") as server:
        yield TaskCall({}, client, far_engine(str(server.make_url("/v1"))))
        await client.close()


async def test_in_base64(far: FarService, call: TaskCall) -> None:
    far.beside = {"revised_prompt": "a red fox"}
    made = await make_far(call, PATH, {"prompt": "a fox"}, {}, FORM)
    assert (made.data, made.told["revised_prompt"]) == (PICTURE, "a red fox")
    assert (far.asked, far.fetched) == ([SENT], [])


async def test_at_an_address_of_its_own_where_our_key_is_not_needed(far: FarService, call: TaskCall) -> None:
    far.always_url = True
    assert (await make_far(call, PATH, {"prompt": "a fox"}, {}, FORM)).data == PICTURE
    far.address = "/made/1?sign=x%2Fy"  # relative ones are meant for whoever asked
    assert (await make_far(call, PATH, {"prompt": "a fox"}, {}, FORM)).data == PICTURE
    assert far.fetched == [None, None]


async def test_a_model_that_answers_inline_and_takes_no_wish(far: FarService, call: TaskCall) -> None:
    far.takes, far.always_inline = far.takes - {"response_format"}, True
    assert (await make_far(call, PATH, {"prompt": "a fox"}, {}, FORM)).data == PICTURE
    assert far.asked == [SENT, {name: value for name, value in SENT.items() if name != "response_format"}]


async def test_files_go_as_a_form_under_names_that_say_what_they_are(far: FarService, call: TaskCall) -> None:
    asked = {"prompt": "a fox", "size": "64x64"}
    made = await make_far(call, "/images/edits", asked, {"image": PICTURE, "mask": b"?"}, FORM)
    assert made.data == PICTURE
    assert far.asked == [SENT | {"n": "1", "size": "64x64"}]
    assert far.files == [{"image": PICTURE, "mask": b"?"}]
    assert far.kinds == [
        {"image": ("image.png", "image/png"), "mask": ("mask.octet-stream", "application/octet-stream")}
    ]


async def test_a_field_that_it_does_not_know(far: FarService, call: TaskCall) -> None:
    with pytest.raises(UpstreamRefused, match="'steps'") as refused:
        await make_far(call, PATH, {"prompt": "a fox", "steps": 4}, {}, FORM)
    assert (refused.value.status, refused.value.param, refused.value.code) == (400, "steps", "unknown_parameter")
    assert len(far.asked) == 1


@pytest.mark.parametrize("status", [401, 402, 403, 429, 500, 302])
@pytest.mark.parametrize("files", [{}, {"image": PICTURE}])
async def test_what_is_not_the_client_s_fault(
    far: FarService, call: TaskCall, status: int, files: dict[str, bytes]
) -> None:
    far.status = status
    with pytest.raises(EngineFailed, match=str(status)) as failed:
        await make_far(call, PATHS[bool(files)], {"prompt": "a fox"}, files, FORM)
    assert KEY not in failed.value.message


@pytest.mark.parametrize("files", [{}, {"image": PICTURE}])
async def test_no_key_and_no_picture_goes_where_the_service_sends_us(
    far: FarService, call: TaskCall, files: dict[str, bytes]
) -> None:
    other = FarService()
    async with TestServer(other.app(), host="127.0.0.1") as server:
        far.moved_to = str(server.make_url(f"/v1{PATHS[bool(files)]}"))
        with pytest.raises(EngineFailed, match="HTTP 307"):
            await make_far(call, PATHS[bool(files)], {"prompt": "a fox"}, files, FORM)
        far.always_url, far.moved_to, far.address = True, "", str(server.make_url("/made/1"))
        with pytest.raises(EngineFailed, match="no public address"):
            await make_far(call, PATH, {"prompt": "a fox"}, {}, FORM)
    assert (other.asked, other.fetched) == ([], [])


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"{",
        b"[]",
        b'{"data": {}}',
        b'{"data": []}',
        b'{"data": ["x"]}',
        b'{"data": [{}]}',
        b'{"data": [{"b64_json": 3, "url": null}]}',
        b'{"data": [{"b64_json": "\xc3\xa9"}]}',
        b'{"data": [{"b64_json": "a"}]}',
        b'{"data": [{"b64_json": "YWJj=YWJj"}]}',
        b'{"data": [{"b64_json": "YWJj\\u0000"}]}',
        b'{"data": [{"b64_json": "\\ud800"}]}',
        b'{"data": ' + b"[" * 100_000,
        b'\xff\xfe{"data": []}',
        gzip.compress(b'{"data": []}', mtime=0),
    ],
)
async def test_an_answer_without_a_file(far: FarService, call: TaskCall, answer: bytes) -> None:
    far.answer = answer
    with pytest.raises(EngineFailed, match="service:far/painter answered"):
        await make_far(call, PATH, {"prompt": "a fox"}, {}, FORM)


@pytest.mark.parametrize(
    "address",
    [
        "http://127.0.0.1:1/x.png",
        "http://169.254.169.254/latest/meta-data",
        "http://[::1]:1/x.png",
        "file:///etc/passwd",
        "http://ann:pw@example.org/x.png",
        "data:image/png;base64,AAAA",
        "http://[",
        "//127.0.0.1:1/x.png",
        "http://localhost:1/x.png",
        "http://2130706433:1/x.png",
        "http://example.org:99999/x.png",
        "http://example.org/" + "x" * 9000,
        "\x00",
    ],
)
async def test_an_address_that_is_not_opened(far: FarService, call: TaskCall, address: str) -> None:
    far.always_url, far.address = True, address
    with pytest.raises(EngineFailed, match=r"not opened|cannot be had"):
        await make_far(call, PATH, {"prompt": "a fox"}, {}, FORM)


@pytest.mark.parametrize("address", ["/made/moved", "/nothing"])
async def test_an_address_with_nothing_to_be_had(far: FarService, call: TaskCall, address: str) -> None:
    """The service's own origin sends nobody elsewhere: what may be opened there may not be opened everywhere."""
    far.always_url, far.address = True, address
    with pytest.raises(EngineFailed, match="its address answers"):
        await make_far(call, PATH, {"prompt": "a fox"}, {}, FORM)


async def test_more_than_is_taken(far: FarService, call: TaskCall, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (far_files, transport):
        monkeypatch.setattr(module, "ANSWER_MOST_BYTES", len(PICTURE) - 1)
    for far.always_url in (True, False):
        with pytest.raises(EngineFailed, match="more than"):
            await make_far(call, PATH, {"prompt": "a fox"}, {}, FORM)
    assert len(far.fetched) == 1


@pytest.mark.parametrize("files", [{}, {"image": PICTURE}])
async def test_answers_without_an_end_are_left(
    far: FarService, call: TaskCall, files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (far_files, transport):
        monkeypatch.setattr(module, "ANSWER_MOST_BYTES", 1 << 20)
    far.endless = b" " * (1 << 16)
    with pytest.raises(EngineFailed, match="more than 1 MiB"):
        await make_far(call, PATHS[bool(files)], {"prompt": "a fox"}, files, FORM)
    await asyncio.wait_for(far.left.wait(), 5)
    far.left.clear()
    far.status = 500
    with pytest.raises(EngineFailed, match="HTTP 500"):
        await make_far(call, PATHS[bool(files)], {"prompt": "a fox"}, files, FORM)
    await asyncio.wait_for(far.left.wait(), 5)
    far.left.clear()
    far.status = 200
    far.endless, far.always_url, far.address = b"", True, "/made/endless"
    with pytest.raises(EngineFailed, match="more than 1 MiB"):
        await make_far(call, PATH, {"prompt": "a fox"}, {}, FORM)
    await asyncio.wait_for(far.left.wait(), 5)


async def test_an_address_from_which_nothing_more_comes(
    far: FarService, call: TaskCall, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(far_files, "FETCH_S", 0.1)
    far.always_url, far.address = True, "/made/slow"
    with pytest.raises(EngineFailed, match="TimeoutError"):
        await make_far(call, PATH, {"prompt": "a fox"}, {}, FORM)
    await asyncio.wait_for(far.left.wait(), 5)


async def test_what_is_told_is_not_the_file_once_more(far: FarService, call: TaskCall) -> None:
    far.beside = {"seed": 1}
    assert (await make_far(call, PATH, {"prompt": "a fox"}, {}, FORM)).told == {"seed": 1}


async def test_nobody_there(call: TaskCall) -> None:
    gone = call._replace(engine=far_engine("http://127.0.0.1:9/v1"))
    for files in ({}, {"image": PICTURE}):
        with pytest.raises(EngineFailed, match="did not answer"):
            await make_far(gone, PATH, {"prompt": "a fox"}, files, FORM)
