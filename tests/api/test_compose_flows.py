"""What a front has of the flow-run side, by its settings."""

from pathlib import Path

import pytest

from api.compose_flows import _spool, open_flow_parts
from infra.records import Boot, read_line
from infra.settings import load_settings
from tests.fakes import FakeChildren


def test_the_spool_can_be_switched_off(tmp_path: Path) -> None:
    assert _spool(load_settings(home=tmp_path, record={"spool": False})) is None
    assert not (tmp_path / "spool").exists()
    spool = _spool(load_settings(home=tmp_path))
    assert spool is not None
    spool.close()


@pytest.mark.parametrize(
    ("flows", "record", "spooling", "api"),
    [({}, {}, True, True), ({"server": "off"}, {}, False, False), ({"server": "off"}, {"spool": True}, True, False)],
)
async def test_what_is_there_by_the_settings(
    tmp_path: Path, flows: dict[str, str], record: dict[str, bool], spooling: bool, api: bool
) -> None:
    settings = load_settings(home=tmp_path, flows=flows, record=record)
    parts = open_flow_parts(settings, FakeChildren(), "token")
    assert (parts.spool is not None, parts.recording is not None) == (spooling, spooling)
    assert (parts.api is not None, parts.address is not None) == (api, api)
    if parts.spool is not None and parts.recording is not None:
        parts.spool.close()
        (segment,) = tmp_path.joinpath("spool").iterdir()
        boot = read_line(segment.read_bytes())
        assert isinstance(boot, Boot)
        assert boot.boot == parts.recording.boot
