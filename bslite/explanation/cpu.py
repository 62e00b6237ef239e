"""`Explanation`: what `explain` found on the CPU, with its table, its trace and its report."""

from pathlib import Path
from typing import Any

from bslite.errors import writing
from bslite.explanation.data.result import Result
from bslite.explanation.views.page import page
from bslite.explanation.views.text import table
from bslite.explanation.views.trace import trace_json


class Explanation(Result):
    """Where the time of one model at one size goes. ``str()`` is a table.

    ``rows`` are the layers in the order of execution; see `Row`. The layers inside a stack follow the row of
    the stack and share its time. ``profile`` holds the work items of one run, ``limits`` the rates of the
    machine, ``memory`` the bytes by owner. Times are in seconds, sizes in bytes.
    """

    def __str__(self) -> str:
        return table(self)

    def save_trace(self, path: Any) -> None:
        """Write the items of one run as a trace for Perfetto (https://ui.perfetto.dev) or chrome://tracing.

        Raises FileError if the file cannot be written.
        """
        _write(path, trace_json(self))

    def save_html(self, path: Any) -> None:
        """Write a report with plots, one file that needs nothing else.

        Needs plotly (``bslite[report]``): UnsupportedError without it. Raises FileError if the file cannot be
        written.
        """
        _write(path, page(self))


def _write(path: Any, text: str) -> None:
    with writing(path):
        Path(path).write_text(text, encoding="utf-8")
