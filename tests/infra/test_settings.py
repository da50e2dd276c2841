"""What processes hand to each other in their environment."""

from pathlib import Path

import pytest

from infra.settings import cache_root, handed_over, inherited_environment, link_fd, secret_environment


def test_a_value_that_was_handed_over_goes_no_further(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLAMA_API_KEY", "k")
    assert handed_over("LLAMA_API_KEY") == "k"
    assert handed_over("LLAMA_API_KEY") is None
    assert "LLAMA_API_KEY" not in inherited_environment()


@pytest.mark.parametrize(("value", "expected"), [("7", 7), ("", None), ("-1", None), ("seven", None)])
def test_the_links_descriptor(monkeypatch: pytest.MonkeyPatch, value: str, expected: int | None) -> None:
    monkeypatch.setenv("CODERAI_LINK_FD", value)
    assert link_fd() == expected


def test_secrets_are_for_the_front_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CODERAI_MODELS__HUB_TOKEN", "t")
    monkeypatch.setenv("CODERAI_SERVER__PORT", "1")
    assert secret_environment() == {"CODERAI_MODELS__HUB_TOKEN": "t"}
    assert "CODERAI_MODELS__HUB_TOKEN" not in inherited_environment()
    assert inherited_environment()["CODERAI_SERVER__PORT"] == "1"


def test_the_cache_follows_xdg(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_root() == tmp_path / "coderai"
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    assert cache_root() == Path.home() / ".cache" / "coderai"
