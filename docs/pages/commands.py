"""The command-line reference, from the Typer application."""

from collections.abc import Iterator

from typer import Typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption
from typer.main import get_command

from docs.pages import NOTICE, table

INTRODUCTION = """# Command line

Every command also answers to `--help`. A command that talks to a running install finds it through the same
configuration that `coderai serve` reads (see `docs/reference/configuration.md`).

"""


def page(app: Typer) -> str:
    """The whole page as Markdown."""
    body = "".join(_section(name, command) for name, command in walk(app))
    return NOTICE.format(source="api/cli") + INTRODUCTION + body.rstrip() + "\n"


def walk(app: Typer) -> Iterator[tuple[str, TyperCommand]]:
    """Every command that does something, with its full name: `coderai models add`."""
    root = get_command(app)
    if isinstance(root, TyperGroup):
        yield from _walk(root, "coderai")


def _walk(group: TyperGroup, prefix: str) -> Iterator[tuple[str, TyperCommand]]:
    for name, command in sorted(group.commands.items()):
        if isinstance(command, TyperGroup):
            yield from _walk(command, f"{prefix} {name}")
        elif isinstance(command, TyperCommand) and not command.hidden:
            yield f"{prefix} {name}", command


def _section(name: str, command: TyperCommand) -> str:
    arguments = [parameter for parameter in command.params if isinstance(parameter, TyperArgument)]
    options = [parameter for parameter in command.params if isinstance(parameter, TyperOption) and not parameter.hidden]
    usage = " ".join([name, *("[OPTIONS]" for _ in options[:1]), *(_placeholder(item) for item in arguments)])
    text = f"## `{name}`\n\n```text\n{usage}\n```\n" + (f"\n{command.help}\n" if command.help else "")
    rows = [(f"`{item.name.upper()}`", item.help or "", _required(item)) for item in arguments if item.name]
    rows += [(_option(item), item.help or "", _required(item)) for item in options]
    return text + ("\n" + table(("argument", "meaning", "default"), rows) if rows else "") + "\n"


def _placeholder(argument: TyperArgument) -> str:
    name = (argument.name or "").upper() + ("..." if argument.nargs != 1 else "")
    return name if argument.required else f"[{name}]"


def _option(option: TyperOption) -> str:
    value = "" if option.is_flag or option.count else f" {(option.metavar or option.name or '').upper()}"
    return ", ".join(f"`{name}{value}`" for name in (*option.opts, *option.secondary_opts))


def _required(parameter: TyperArgument | TyperOption) -> str:
    if parameter.required:
        return "required"
    default = parameter.default
    if default is None or default == "" or callable(default):
        return ""
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"
