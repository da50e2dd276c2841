"""What the routes share: made once by the composition root, handed to each by keyword."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from api.accounting import Accounting
from api.active import ActiveRuns
from api.auth import Auth
from api.file_desk import FileDesk
from api.limits import KeyLimits
from api.progress import ProgressDesk
from api.run import Runner
from api.seals import Seals
from api.shelf import Shelf
from infra.database import Database
from infra.errors import Draining
from infra.metrics import Metrics
from infra.prefect_address import PrefectAddress
from infra.prefect_api import PrefectApi
from infra.settings import Settings
from infra.spool import Spool
from infra.supervisor.types import Children
from workers.fleet import Fleet
from workers.sites import Sites

if TYPE_CHECKING:
    from api.media.kept import KeptFiles


@dataclass(frozen=True, slots=True)
class Services:
    """The parts of one front."""

    settings: Settings
    database: Database
    auth: Auth
    limits: KeyLimits
    shelf: Shelf
    fleet: Fleet
    children: Children
    """The processes of this install."""
    sites: Sites
    """Where the parts of a request could run."""
    runner: Runner
    accounting: Accounting
    metrics: Metrics
    spool: Spool | None
    active: ActiveRuns
    prefect: PrefectAddress | None
    """Where flow runs are; None with `flows.server = "off"`."""
    prefect_api: PrefectApi | None
    progress: ProgressDesk
    files: FileDesk
    kept: "KeptFiles"
    """Files that come with requests."""
    seals: Seals
    """Seals what clients keep for us."""
    version: str

    def require_open(self) -> None:
        """Asked before something new is begun.

        Raises:
            Draining: not now.
        """
        if self.fleet.draining:
            raise Draining("the server is shutting down; ask again in a moment", retry_after_s=5)
