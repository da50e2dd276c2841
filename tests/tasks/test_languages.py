"""Languages by code, tag and name."""

import pytest

from tasks.languages import LANGUAGES, language_code


@pytest.mark.parametrize(
    ("text", "code"),
    [("en", "en"), ("EN", "en"), ("en-GB", "en"), ("pt_BR", "pt"), ("German", "de"), (" haitian creole ", "ht"),
     ("yue", "yue"), ("klingon", None), ("", None), ("xx", None)],
)  # fmt: skip
def test_what_a_language_is_called(text: str, code: str | None) -> None:
    assert language_code(text) == code


def test_every_code_means_itself() -> None:
    assert len(LANGUAGES) == 100
    assert all(language_code(code) == code == language_code(name) for code, name in LANGUAGES.items())
