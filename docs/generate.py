"""Writes the generated pages of `docs/reference`: `python -m docs.generate`, which is `make docs`."""

from pathlib import Path

from api.app import build_openapi
from api.cli.main import app
from docs.pages import commands, routes, settings

REFERENCE = Path(__file__).parent / "reference"


def pages() -> dict[str, str]:
    """Every generated page by its file name, as it should be now."""
    return {
        "configuration.md": settings.page(),
        "command-line.md": commands.page(app),
        "api.md": routes.page(build_openapi()),
    }


def write(folder: Path) -> list[str]:
    """Write the pages that differ from what stands in `folder`; returns their names."""
    changed = []
    for name, text in pages().items():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            changed.append(name)
    return changed


if __name__ == "__main__":
    REFERENCE.mkdir(exist_ok=True)
    write(REFERENCE)
