"""The documents hold: paths exist, code compiles, commands are real, generated pages are current."""

import json
import re
import shlex
import tomllib
from pathlib import Path

from typer.core import TyperCommand

from api.cli.main import app
from docs.generate import REFERENCE, pages
from docs.pages.commands import walk
from tests.repo.markdown import blocks, commands, inline, links
from tests.repo.tree import FOLDERS, ROOT, files, read

PATH = re.compile(r"[\w.-]+(/[\w.-]+)*/?")


def test_every_path_that_a_page_names_exists() -> None:
    wrong = []
    for snippet in inline():
        name = snippet.text
        ours = (name.split("/")[0] in FOLDERS and "/" in name) or name in _root_files_named_like(name)
        if ours and PATH.fullmatch(name) and not (ROOT / name).exists():
            wrong.append(f"{snippet.page}: {name}")
    assert not wrong, "\n".join(wrong)


def test_every_link_leads_somewhere() -> None:
    wrong = [
        f"{link.page}: {link.text}" for link in links() if not (ROOT / Path(link.page).parent / link.text).exists()
    ]
    assert not wrong, "\n".join(wrong)


def test_every_page_can_be_found() -> None:
    """From README or from another page, by a link."""
    reached = {(ROOT / Path(link.page).parent / link.text).resolve() for link in links()}
    lost = [name for name in files() if name.startswith("docs/") and name.endswith(".md")]
    assert not [name for name in lost if ROOT / name not in reached]


def test_python_blocks_compile() -> None:
    for block in blocks():
        if block.language == "python":
            compile(block.text, block.page, "exec")


def test_toml_and_json_blocks_parse() -> None:
    for block in blocks():
        if block.language == "toml":
            tomllib.loads(block.text)
        elif block.language == "json":
            json.loads(block.text)


def test_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", read("Makefile"), re.MULTILINE))
    wrong = [
        f"{command.page}: {command.text}"
        for command in commands()
        if (words := _words(command.text)) and words[0] == "make" and len(words) > 1 and words[1] not in targets
    ]
    assert not wrong, "\n".join(wrong)


def test_commands_and_their_options_exist() -> None:
    known = dict(walk(app))
    wrong = [
        f"{command.page}: {command.text}"
        for command in commands()
        if (words := _words(command.text)) and words[0] == "coderai" and not _is_known(words, known)
    ]
    assert not wrong, "\n".join(wrong)


def test_generated_pages_are_current() -> None:
    stale = [name for name, text in pages().items() if not _same(REFERENCE / name, text)]
    assert not stale, f"run `make docs`: {', '.join(stale)}"


def test_every_dependency_is_explained() -> None:
    project = tomllib.loads(read("pyproject.toml"))["project"]
    wanted = [
        *project["dependencies"],
        *(item for extra in project["optional-dependencies"].values() for item in extra),
    ]
    names = {match[0] for item in wanted if (match := re.match(r"[\w.-]+", item))}
    page = read("docs/reference/dependencies.md")
    assert not {name for name in names if f"`{name}`" not in page}


def _root_files_named_like(name: str) -> set[str]:
    """Names such as `Makefile` or `pyproject.toml`: an inline code that looks like one of the root's files."""
    return {name} if re.fullmatch(r"[A-Z]{4,}\.md|pyproject\.toml|constraints\.txt|prefect\.yaml", name) else set()


def _words(line: str) -> list[str]:
    """The words of a command without leading assignments; none for a line within a longer quotation."""
    try:
        words = shlex.split(line, comments=True)
    except ValueError:
        return []
    while words and re.match(r"[A-Z_]+=", words[0]):
        words = words[1:]
    return words


def _is_known(words: list[str], known: dict[str, TyperCommand]) -> bool:
    """A command's full name, or the name of its group, followed by options that it has."""
    names = [" ".join(words[: n + 1]) for n in range(len(words))]
    command = next((known[name] for name in reversed(names) if name in known), None)
    if command is None:
        return len(words) < 3 and any(name.startswith(f"{names[-1]} ") for name in known)
    options = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    return all(word.split("=")[0] in options for word in words if word.startswith("-") and word != "--help")


def _same(path: Path, text: str) -> bool:
    return path.exists() and path.read_text(encoding="utf-8") == text
