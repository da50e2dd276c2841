"""Health for probes and the metrics page, in a front that is running."""

import time

import pytest
from prometheus_client.parser import text_string_to_metric_families

from infra.recorder_status import STATUS_FILE, RecorderStatus
from tests.api.conftest import Front, StartFront


async def page(front: Front, key: str | None = "user") -> tuple[int, str, str]:
    headers = front.headers(key) if key else {}
    async with front.session.get(front.url + "/metrics", headers=headers) as answer:
        return answer.status, answer.headers["Content-Type"], await answer.text()


async def test_health_says_what_it_is(start_front: StartFront) -> None:
    front = await start_front()
    status, body = await front.get("/healthz", None)
    assert (status, body) == (200, {"ok": True, "version": front.services.version, "draining": False})
    async with front.session.head(front.url + "/healthz") as answer:
        assert (answer.status, await answer.read()) == (200, b"")
    front.services.fleet.draining = True
    assert (await front.get("/healthz", None))[1]["draining"] is True


@pytest.mark.parametrize(("public", "status"), [(False, 401), (True, 200)])
async def test_metrics_are_open_only_where_the_settings_say_so(
    start_front: StartFront, public: bool, status: int
) -> None:
    front = await start_front(server={"metrics_public": public})
    assert (await page(front, None))[0] == status
    assert (await page(front))[0] == 200


async def test_of_two_keys_none_opens_the_metrics(start_front: StartFront) -> None:
    front = await start_front()
    two = [("Authorization", "Bearer x"), ("Authorization", front.headers()["Authorization"])]
    async with front.session.get(f"{front.url}/metrics", headers=two) as answer:
        assert answer.status == 401


async def test_the_page_parses_and_follows_what_is_there(start_front: StartFront) -> None:
    front = await start_front()
    await front.post("/admin/api/model-load", {"model": "tiny"}, "admin")
    status, kind, text = await page(front)
    assert status == 200
    assert kind.startswith("text/plain")
    values = {
        (sample.name, sample.labels.get("engine", "")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert values["coderai_engine_up", "cpu/tiny"] == 1
    assert values["coderai_engine_loaded_models", "cpu/tiny"] == 1
    assert values["coderai_engine_vram_total_bytes", "cpu"] > 0
    assert values["coderai_requests_active", ""] == 0
    assert values["coderai_spool_dropped", ""] == 0
    await front.post("/admin/api/model-unload", {"model": "tiny"}, "admin")
    assert "cpu/tiny" not in (await page(front))[2]


async def test_the_recorder_is_shown_as_it_said_last(start_front: StartFront) -> None:
    front = await start_front(flows={"server": "child"})
    home = front.services.settings.home

    async def recorder() -> dict[str, float]:
        families = text_string_to_metric_families((await page(front))[2])
        samples = [sample for family in families for sample in family.samples]
        return {
            sample.labels.get("state", sample.name.removeprefix("coderai_recorder_")): sample.value
            for sample in samples
            if sample.name.startswith("coderai_recorder_")
        }

    assert (await recorder())["silent"] == 1
    status = RecorderStatus(
        state="waiting", recorded=7, set_aside=1, waiting_segments=3, oldest_waiting_s=1.5, written_at=time.time()
    )
    home.joinpath(*STATUS_FILE).parent.mkdir(exist_ok=True)
    home.joinpath(*STATUS_FILE).write_text(status.model_dump_json())
    shown = {"waiting": 1, "recorded": 7, "set_aside": 1, "waiting_segments": 3, "oldest_waiting_seconds": 1.5}
    assert await recorder() == shown
    stale = status.model_copy(update={"written_at": time.time() - 1000})
    home.joinpath(*STATUS_FILE).write_text(stale.model_dump_json())
    assert (await recorder())["silent"] == 1
