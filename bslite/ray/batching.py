"""`Batching`: how a replica puts requests together, which may change while it runs."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from bslite.errors import InputError


@dataclass(frozen=True)
class Batching:
    """At most ``max_batch_size`` rows at once; at rest, wait ``batch_wait_timeout_s`` seconds for others.

    InputError for what is no number of rows or of seconds.
    """

    max_batch_size: int = 16
    batch_wait_timeout_s: float = 0.002

    def __post_init__(self) -> None:
        rows, seconds = self.max_batch_size, self.batch_wait_timeout_s
        if type(rows) is not int or rows < 1:
            raise InputError(f"max_batch_size is {rows!r}; expected a number of rows, 1 or more")
        if type(seconds) not in (int, float) or not 0 <= seconds < float("inf"):
            raise InputError(f"batch_wait_timeout_s is {seconds!r}; expected a number of seconds, 0 or more")

    def changed(self, settings: Mapping[str, Any] | None) -> "Batching":
        """With some settings replaced. InputError for one that it does not have."""
        names = [field.name for field in fields(self)]
        if unknown := [name for name in settings or () if name not in names]:
            raise InputError(f"user_config has {unknown[0]!r}; a replica takes {' and '.join(names)}")
        return replace(self, **(settings or {}))

    def config(self) -> dict[str, Any]:
        """As Serve's ``user_config``."""
        return asdict(self)
