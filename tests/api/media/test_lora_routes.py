"""The adapters of each key over HTTP."""

import hashlib
from typing import Any

import pytest

from infra.database import open_database
from infra.tokens import create_key
from tests.api.conftest import Front, StartFront
from tests.tiny_loras import safetensors

pytestmark = pytest.mark.enable_socket
GOOD, OTHER = safetensors(), safetensors(fill=b"\x02")
REF = f"sha256:{hashlib.sha256(GOOD).hexdigest()}"


async def started(start_front: StartFront) -> Front:
    """A front with a second user."""
    front = await start_front()
    database = open_database(front.settings.sqlalchemy_url)
    front.keys["second"] = create_key(database, "second", "user")
    database.close()
    await front.services.shelf.refresh()
    return front


async def send(front: Front, data: bytes, query: str = "", scope: str = "user") -> Any:
    url = f"{front.url}/v1/loras/upload{query}"
    async with front.session.post(url, data=data, headers=front.headers(scope)) as answer:
        assert answer.status == 200, await answer.text()
        return await answer.json()


async def delete(front: Front, name: str, scope: str = "user") -> tuple[int, Any]:
    async with front.session.delete(f"{front.url}/v1/loras/{name}", headers=front.headers(scope)) as answer:
        return answer.status, await answer.json()


async def test_an_adapter_is_shown_by_name_and_by_content(start_front: StartFront) -> None:
    front = await started(start_front)
    await send(front, GOOD, "?name=style&base_model=sd15")
    status, body = await front.get("/v1/loras/style")
    created_at = body.pop("created_at")
    assert created_at > 1_700_000_000
    assert (status, body) == (
        200,
        {
            "id": REF,
            "object": "lora",
            "name": "style",
            "base_model": "sd15",
            "rank": 4,
            "bytes": len(GOOD),
            "shared": False,
        },
    )
    assert (await front.get(f"/v1/loras/{REF}"))[1]["name"] == "style"
    for ref in (REF, REF.removeprefix("sha256:")):
        answer = await front.get(f"/v1/loras/blob/{ref}")
        assert answer == (200, {"id": REF, "bytes": len(GOOD), "exists": True})
    assert [lora["id"] for lora in (await front.get("/v1/loras"))[1]["data"]] == [REF]
    assert await delete(front, "style") == (200, {"id": "style", "object": "lora.deleted", "deleted": True})
    for path in ("/v1/loras/style", f"/v1/loras/{REF}", f"/v1/loras/blob/{REF}"):
        status, body = await front.get(path)
        assert (status, body["error"]["code"]) == (404, "lora_not_found")
    assert (await delete(front, "style"))[0] == 404


async def test_two_keys_do_not_reach_each_other_s(start_front: StartFront) -> None:
    front = await started(start_front)
    await send(front, GOOD, "?name=style")
    for path in ("/v1/loras/style", f"/v1/loras/{REF}", f"/v1/loras/blob/{REF}"):
        assert (await front.get(path, "second"))[0] == 404
    assert (await delete(front, "style", "second"))[0] == 404
    assert (await delete(front, REF, "second"))[0] == 404
    assert (await front.get("/v1/loras", "second"))[1]["data"] == []
    assert (await send(front, GOOD, scope="second"))["existed"] is False
    (seen,) = [lora for lora in (await front.get("/v1/loras", "admin"))[1]["data"] if lora.get("name")]
    assert (seen["key"], seen["shared"]) == ("user", False)
    assert (await front.get("/v1/loras/style", "admin"))[0] == 200


async def test_what_an_admin_names_is_for_all(start_front: StartFront) -> None:
    front = await started(start_front)
    await send(front, GOOD, "?name=house-style", "admin")
    await send(front, OTHER, scope="admin")
    for scope in ("user", "second"):
        (seen,) = (await front.get("/v1/loras", scope))[1]["data"]
        assert (seen["name"], seen["shared"], "key" in seen) == ("house-style", True, False)
        assert (await delete(front, "house-style", scope))[0] == 403
    assert (await delete(front, "house-style", "admin"))[0] == 200


@pytest.mark.parametrize("name", ["..%2f..%2fetc%2fpasswd", "a%00b", "sha256:..", "%C3%A9", "x" * 3000])
async def test_a_strange_name_is_none_that_there_is(start_front: StartFront, name: str) -> None:
    front = await started(start_front)
    assert (await front.get(f"/v1/loras/{name}"))[0] == 404
    assert (await delete(front, name))[0] == 404
    assert (await front.get(f"/v1/loras/blob/{name}"))[0] == 404


async def test_near_names_are_told(start_front: StartFront) -> None:
    front = await started(start_front)
    await send(front, GOOD, "?name=watercolour")
    _status, body = await front.get("/v1/loras/watercolor")
    assert "near names: watercolour" in body["error"]["message"]
