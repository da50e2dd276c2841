"""Sealed texts: for one key alone, and only as they were."""

import base64
import subprocess
import sys
from pathlib import Path

import pytest

from api.seals import Seals
from infra.types import KeyName

ANN, BOB = KeyName("ann"), KeyName("bob")
TEXT = "The capital of Peru is Lima. Größe: 7 µm."


@pytest.fixture
def seals(tmp_path: Path) -> Seals:
    return Seals(tmp_path / "secrets" / "session.key")


def test_what_is_sealed_opens_for_its_owner(seals: Seals, tmp_path: Path) -> None:
    sealed = seals.seal(TEXT, ANN)
    assert seals.open(sealed, ANN) == TEXT
    assert Seals(tmp_path / "secrets" / "session.key").open(sealed, ANN) == TEXT  # after a restart, too
    assert "Lima" not in sealed
    assert b"Lima" not in base64.urlsafe_b64decode(sealed)
    assert seals.seal(TEXT, ANN) != sealed


def test_nobody_else_s_opens(seals: Seals, tmp_path: Path) -> None:
    sealed = seals.seal(TEXT, ANN)
    assert seals.open(sealed, BOB) is None
    assert seals.open(sealed, KeyName("an")) is None
    assert Seals(tmp_path / "another.key").open(sealed, ANN) is None


def test_every_changed_character_is_seen(seals: Seals) -> None:
    sealed = seals.seal(TEXT, ANN)
    for place, character in enumerate(sealed):
        other = "A" if character != "A" else "B"
        assert seals.open(sealed[:place] + other + sealed[place + 1 :], ANN) is None, place


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param("", id="nothing"),
        pytest.param("gAAAA", id="a beginning"),
        pytest.param("no base64!", id="no base64"),
        pytest.param("é" * 100, id="no ASCII"),
        pytest.param("\udcff", id="half a character"),
        pytest.param("x" * 2**20, id="a megabyte"),
        pytest.param("gAAAAA" + "A" * 2**20, id="a megabyte with a good beginning"),
    ],
)
def test_garbage_does_not_open(seals: Seals, wrong: str) -> None:
    assert seals.open(wrong, ANN) is None


def test_what_was_cut_off_or_added_to_does_not_open(seals: Seals) -> None:
    sealed = seals.seal(TEXT, ANN)
    for wrong in (sealed[:-1], sealed[:-4], sealed[: len(sealed) // 2], sealed + "AAAA", " " + sealed, sealed + "\n"):
        assert seals.open(wrong, ANN) is None


def test_a_front_that_seals_nothing_has_not_the_library() -> None:
    code = "import sys, api.front; sys.exit(any(name.split('.')[0] == 'cryptography' for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
