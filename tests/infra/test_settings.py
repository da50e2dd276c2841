"""What processes hand to each other in their environment."""

from pathlib import Path

import pytest

from infra.errors import SettingsInvalid
from infra.settings import (
    cache_root,
    handed_over,
    inherited_environment,
    link_fd,
    load_settings,
    secret_environment,
)


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


@pytest.mark.parametrize(
    ("text", "key", "hint"),
    [
        ("[serverr]\nport = 1", "serverr", "did you mean server?"),
        ("[server]\nprot = 1", "server.prot", "did you mean port?"),
        ("zzz = 1", "zzz", "no setting"),
        ("[server]\nport = 1\n[auth]\nwhat = 1", "auth.what", "no setting"),
    ],
)
def test_an_unknown_key_of_the_file_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, key: str, hint: str
) -> None:
    (tmp_path / "coderai.toml").write_text(text)
    monkeypatch.setenv("CODERAI_HOME", str(tmp_path))
    with pytest.raises(SettingsInvalid) as caught:
        load_settings()
    assert caught.value.param == key
    assert hint in caught.value.message
    assert str(tmp_path / "coderai.toml") in caught.value.message


def test_an_unknown_variable_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CODERAI_CLUSTER_TOKEN", "of another version")
    monkeypatch.setenv("CODERAI_NO_SUCH__SETTING", "1")
    monkeypatch.setenv("CODERAI_SERVER__PORT", "1234")
    assert load_settings().server.port == 1234


def test_an_unknown_variable_of_a_known_section_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CODERAI_SERVER__PROT", "1234")
    with pytest.raises(SettingsInvalid, match=r"server\.prot"):
        load_settings()


def test_known_keys_of_the_file_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    card = "[[cards.engine_specs]]\nname = 'a'\nbackend = 'cpu'"
    text = f"[server]\nport = 4321\n[[model]]\nname = 'x'\nwhatever = 1\n{card}"
    (tmp_path / "coderai.toml").write_text(text)
    monkeypatch.setenv("CODERAI_HOME", str(tmp_path))
    settings = load_settings()
    assert settings.server.port == 4321
    assert settings.cards.engine_specs[0].name == "a"
