"""One module a generated page: each reads what the code declares and returns Markdown."""

from collections.abc import Sequence

NOTICE = "<!-- Written by `make docs` from {source}. Edit that, not this page. -->\n\n"


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """A Markdown table; bars in cells are escaped, line breaks become spaces."""
    lines = [head, ("---",) * len(head), *rows]
    return "".join(f"| {' | '.join(_cell(cell) for cell in line)} |\n" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
