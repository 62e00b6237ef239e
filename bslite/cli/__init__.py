"""The command line, ``bslite``; one file per command, which `bslite.cli.app` collects.

Exit codes: 0 fine, 1 a verification failed, 2 the command, the model or the input is wrong.
"""

import re
import sys
import textwrap
from collections.abc import Sequence
from typing import NoReturn

from bslite.errors import BsliteError

WIDTH = 80  # of messages
BOUND = "\N{NO-BREAK SPACE}"  # where no line ends


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one command and exit. ``arguments`` default to the process's own."""
    try:
        import rich  # noqa: F401  # only to see that it is there
        import typer  # noqa: F401
    except ModuleNotFoundError as e:
        sys.exit(_complain(f'the command line needs {e.name}; install it with: pip install "bslite[cli]"'))
    from bslite.cli.app import app

    try:
        app(args=arguments, prog_name="bslite")
    except BsliteError as e:
        sys.exit(_complain(str(e)))
    except MemoryError as e:
        sys.exit(_complain(f"there is not enough memory: {e}" if str(e) else "there is not enough memory"))
    sys.exit(0)


def _complain(message: str) -> int:
    print(fitted(f"bslite: {message}"), file=sys.stderr)
    return 2


def fitted(message: str) -> str:
    """The message in lines of at most `WIDTH` characters. Commands to paste, and long words, stay whole."""
    joined = re.sub(r"pip install (?=\S)", f"pip{BOUND}install{BOUND}", message)
    lines = []
    for line in joined.splitlines():
        inner = line[: len(line) - len(line.lstrip())] + "  "
        lines += textwrap.wrap(
            line, WIDTH, subsequent_indent=inner, break_long_words=False, break_on_hyphens=False
        ) or [""]
    return "\n".join(lines).replace(BOUND, " ")
