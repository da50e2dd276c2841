"""The signs of life of one child, as its supervisor waits for them: one that gives none for long is taken for hung.

Looks are counted rather than seconds, so that nobody is judged for a time in which the supervisor, or the whole
machine, stood still itself.
"""

import asyncio
import os
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PulsePolicy:
    """How long a child may give no sign of life."""

    look_s: float = 5.0
    """Seconds between two looks."""
    misses: int = 12
    """Looks in a row that find nothing new: a minute, in which the laziest machine gets around to every process."""
    first_misses: int = 360
    """The same before the first sign: half an hour, for the import of much and the migration of a large database."""


PATIENT = PulsePolicy()


class Pulse:
    """A pipe: `theirs` is the end that the process gets."""

    def __init__(self) -> None:
        self._ours, self.theirs = os.pipe()
        os.set_blocking(self._ours, False)
        os.set_blocking(self.theirs, False)
        self._felt = False
        self._ever = False

    def handed_over(self) -> None:
        """The process has its end."""
        os.close(self.theirs)

    async def lost(self, policy: PulsePolicy) -> float:
        """Wait until it is lost; returns for how many seconds there was none."""
        loop = asyncio.get_running_loop()
        loop.add_reader(self._ours, self._feel)
        try:
            missed = 0
            while missed < (policy.misses if self._ever else policy.first_misses):
                await asyncio.sleep(policy.look_s)
                missed = 0 if self._felt else missed + 1
                self._felt = False
            return missed * policy.look_s
        finally:
            loop.remove_reader(self._ours)

    def close(self) -> None:
        """The process is gone; whoever waits for the end of its pulse must have been called off."""
        os.close(self._ours)

    def _feel(self) -> None:
        if os.read(self._ours, 4096):
            self._felt = self._ever = True
        else:
            asyncio.get_running_loop().remove_reader(self._ours)  # it closed its end
