"""The command line as Markdown: every command, argument and option that the program itself has."""

import inspect
import re
from enum import Enum
from typing import Any


def group() -> Any:
    """The program's group of commands."""
    import typer

    from bslite.cli.app import app

    return typer.main.get_command(app)


def text() -> str:
    """A section for each command."""
    program = group()
    above = program.context_class(program, info_name="bslite")
    return "\n".join(_section(name, command, above) for name, command in program.commands.items())


def _section(name: str, command: Any, above: Any) -> str:
    context = command.context_class(command, info_name=name, parent=above)
    usage = re.sub(r"\s+", " ", command.get_usage(context)).removeprefix("Usage: ")
    rows = [_row(p, context) for p in command.params]
    table = ["| | what it does | default |", "|---|---|---|", *rows] if rows else []
    return "\n".join(
        [
            f"## bslite {name}",
            "",
            inspect.cleandoc(command.help or ""),
            "",
            "```text",
            usage,
            "```",
            "",
            *table,
            "",
        ]
    )


def _row(parameter: Any, context: Any) -> str:
    cells = (_names(parameter, context), parameter.help or "", _default(parameter))
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _names(parameter: Any, context: Any) -> str:
    """Its names and what they take, as the program's own help writes them."""
    return f"`{parameter.get_help_record(context)[0].strip()}`"


def _default(parameter: Any) -> str:
    """What holds where the parameter is not given; empty where its help says so."""
    value = parameter.default
    if parameter.required:
        return "required"
    if value is None or callable(value) or getattr(parameter, "show_default", True) is False:
        return ""
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"`{value.value if isinstance(value, Enum) else value}`"
