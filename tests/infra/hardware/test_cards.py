"""Cards as values, and the cores of the processor."""

import os

import psutil
import pytest

from infra.hardware.cards import physical_cores


def test_there_is_a_core() -> None:
    assert 1 <= physical_cores() <= (psutil.cpu_count() or 1)


def test_only_cores_that_we_may_use_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "cpu_count", lambda logical: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5, 7})
    assert physical_cores() == 3


def test_a_system_that_does_not_tell_its_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "cpu_count", lambda logical: None)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    assert physical_cores() == 2
