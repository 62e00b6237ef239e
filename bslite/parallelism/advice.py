"""`Advice`: what `tune` says, as data and as text."""

from bslite.parallelism.result import Found
from bslite.parallelism.view import text


class Advice(Found):
    """How to run ``model`` on ``cores``. ``rows`` are the settings worth showing, the chosen one first.

    ``str()`` is a table and the lines to paste, `as_dict` plain data.
    """

    def __str__(self) -> str:
        return text(self)
