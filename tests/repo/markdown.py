"""What the project's Markdown pages say that can be checked: code blocks, inline code, links."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tests.repo.tree import files, read

FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
LINK = re.compile(r"\]\(([^)\s#]+)(?:#[\w-]*)?\)")
SHELL = frozenset({"sh", "bash", "console", "shell"})


@dataclass(frozen=True)
class Snippet:
    """A piece of a page: where it stands, the language of its fence (empty inline), its text."""

    page: str
    language: str
    text: str


def pages() -> Iterator[tuple[str, str]]:
    """Every Markdown page and its text."""
    return ((name, read(name)) for name in files() if name.endswith(".md"))


def blocks() -> Iterator[Snippet]:
    """Fenced code."""
    for name, text in pages():
        yield from (Snippet(name, language, body) for language, body in FENCE.findall(text))


def inline() -> Iterator[Snippet]:
    """Code within a sentence."""
    for name, text in pages():
        yield from (Snippet(name, "", code) for code in INLINE.findall(FENCE.sub("", text)))


def links() -> Iterator[Snippet]:
    """Targets of links that stay within the repository."""
    for name, text in pages():
        targets = LINK.findall(FENCE.sub("", text))
        yield from (Snippet(name, "", target) for target in targets if "://" not in target)


def commands() -> Iterator[Snippet]:
    """Shell lines: those of shell blocks, continued lines joined, and inline code that starts as ours do."""
    for block in blocks():
        if block.language in SHELL:
            for line in block.text.replace("\\\n", " ").splitlines():
                yield Snippet(block.page, block.language, line.strip().removeprefix("$ "))
    yield from (snippet for snippet in inline() if snippet.text.startswith(("coderai ", "make ")))
