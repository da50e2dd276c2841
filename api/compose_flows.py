"""The part of the composition that records runs and runs jobs: the spool, and the two companion processes."""

from dataclasses import dataclass

from api.active import ActiveRuns
from api.companions import Companions
from api.recording import Recording
from infra.blobs import Blobs
from infra.prefect_address import PrefectAddress
from infra.prefect_api import PrefectApi
from infra.prefect_child.spec import basic, prefect_auth
from infra.settings import Settings
from infra.spool import Spool
from infra.supervisor.types import Children


@dataclass(frozen=True, slots=True)
class FlowParts:
    """What a front has of the flow-run side; all but `active` and `companions` are None where it is switched off."""

    active: ActiveRuns
    companions: Companions
    spool: Spool | None = None
    recording: Recording | None = None
    address: PrefectAddress | None = None
    api: PrefectApi | None = None


def open_flow_parts(settings: Settings, children: Children, internal_token: str) -> FlowParts:
    """The parts, begun: the spool has its first line."""
    active = ActiveRuns()
    address = PrefectAddress(basic(prefect_auth(internal_token)))
    companions = Companions(children, settings, internal_token, address)
    spool = _spool(settings)
    recording = None
    if spool is not None:
        recording = Recording(spool, active, settings.payloads, Blobs(settings.at("payloads")))
        recording.begin()
    if settings.flows.server == "off":
        return FlowParts(active, companions, spool, recording)
    return FlowParts(active, companions, spool, recording, address, PrefectApi(address))


def _spool(settings: Settings) -> Spool | None:
    record = settings.record
    if not settings.spooling:
        return None
    return Spool(settings.at("spool"), max_bytes=record.spool_max_mib * 2**20, segment_bytes=record.segment_mib * 2**20)
