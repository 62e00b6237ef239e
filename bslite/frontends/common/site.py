"""One operation of the source model at its place: what its builder appends layers through."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from bslite.frontends.common.values import Dims


class Site(ABC):
    """Base of the frontends' sites, which lets them share builders."""

    @abstractmethod
    def emit(
        self, op: str, *inputs: Any, inner: Dims | None = None, params: Mapping[str, Any] | None = None,
        **attrs: Any,
    ) -> Any:  # fmt: skip
        """Append a layer and return its value. The layer makes the operation's own result, or, if ``inner``
        is given, an intermediate value of that shape.
        """

    @abstractmethod
    def const(self, array: Any, what: str = "value") -> Any:
        """An array computed here, as an operand; ``what`` names it in the model's file."""
