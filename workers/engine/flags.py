"""What a llama-server of the user's own can do: the flags that its help names."""

import asyncio
import re
from pathlib import Path

from infra.errors import NotInstalled
from infra.settings import inherited_environment

_FLAG = re.compile(r"(?:^|[\s,])(--?[A-Za-z][A-Za-z0-9-]*)")
_COLUMN = re.compile(r"\s{2,}(?![-\s])")
"""Two spaces end the flags, unless another flag follows (`-c,    --ctx-size N     size of ...`)."""
_HELP_S = 30.0


def parse_flags(text: str) -> frozenset[str]:
    """Every flag named at the start of a line of `--help`."""
    lines = (line for line in text.splitlines() if line.startswith("-"))
    return frozenset(flag for line in lines for flag in _FLAG.findall(_COLUMN.split(line, maxsplit=1)[0]))


async def read_flags(server_bin: Path) -> frozenset[str]:
    """Run `server_bin --help` once.

    Raises:
        NotInstalled: the program is missing, does not run, or is no llama-server.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            str(server_bin),
            "--help",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=inherited_environment(),
        )
    except OSError as error:
        raise NotInstalled(f"llama.server_bin {server_bin} cannot be run: {error.strerror}") from error
    try:
        async with asyncio.timeout(_HELP_S):
            output, _ = await process.communicate()
    except TimeoutError as error:
        process.kill()
        await process.wait()
        raise NotInstalled(f"llama.server_bin {server_bin} does not answer --help within {_HELP_S:g} s") from error
    flags = parse_flags(output.decode("utf-8", "replace"))
    if "--model" not in flags or "--port" not in flags:
        raise NotInstalled(f"llama.server_bin {server_bin} is no llama-server: its --help names no --model or --port")
    return flags
