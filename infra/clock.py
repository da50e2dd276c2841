"""Time as a thing that is passed in, so that tests need not wait."""

import time
from collections.abc import Callable

Clock = Callable[[], float]
"""Seconds; only differences mean anything."""

monotonic: Clock = time.monotonic
wall: Clock = time.time
