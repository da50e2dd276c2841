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


@pytest.mark.parametrize("variable", ["CODERAI_MODELS__HUB_TOKEN", "CODERAI_DATABASE_URL", "CODERAI_MODEL"])
def test_settings_are_for_the_front_alone(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "secret")
    monkeypatch.setenv("CODERAI_HOME", "/srv/coderai")
    assert secret_environment() == {variable: "secret"}
    assert variable not in inherited_environment()
    assert inherited_environment()["CODERAI_HOME"] == "/srv/coderai"


def test_the_cache_follows_xdg(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_root() == tmp_path / "coderai"
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    assert cache_root() == Path.home() / ".cache" / "coderai"
