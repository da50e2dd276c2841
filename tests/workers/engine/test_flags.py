"""What a program's help says about its flags."""

from pathlib import Path

import pytest

from infra.errors import NotInstalled
from workers.engine.flags import parse_flags, read_flags

HELP = """----- common params -----

-h,    --help, --usage                  print usage and exit
-m,    --model FNAME                    model path, see --not-a-flag
-ngl,  --gpu-layers, --n-gpu-layers N   max. number of layers
--jinja, --no-jinja                     whether to use jinja (default: enabled)
                                        or --neither-this
-kvu,  --kv-unified, -no-kvu, --no-kv-unified
                                        use single unified KV buffer
--port PORT                             port to listen
"""


def program(path: Path, body: str) -> Path:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def test_flags_are_read_and_words_are_not() -> None:
    flags = parse_flags(HELP)
    assert {"--model", "-m", "--n-gpu-layers", "--no-jinja", "--no-kv-unified", "--port", "--usage"} <= flags
    assert not flags & {"--not-a-flag", "--neither-this"}


async def test_the_program_is_asked(tmp_path: Path) -> None:
    flags = await read_flags(program(tmp_path / "llama-server", f"cat <<'END'\n{HELP}\nEND"))
    assert "--no-kv-unified" in flags


async def test_another_program_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotInstalled, match="is no llama-server"):
        await read_flags(program(tmp_path / "other", "echo hello"))


async def test_a_missing_program_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotInstalled, match="cannot be run: No such file"):
        await read_flags(tmp_path / "llama-server")


async def test_the_program_is_told_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CODERAI_DATABASE_URL", "postgresql://coderai:secret@box/coderai")
    body = f"cat <<'END'\n{HELP}\nEND\nenv > {tmp_path}/env"
    await read_flags(program(tmp_path / "llama-server", body))
    told = (tmp_path / "env").read_text()
    assert "PATH=" in told
    assert "postgresql" not in told
