"""Operations without a builder, written out in others: torch's own decompositions of them."""

import re
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from bslite.frontends.common.lazy import load_torch
from bslite.frontends.torch.builders import known

if TYPE_CHECKING:
    import torch

#: Operations that end in library routines of torch's however they are written out.
WHOLE = re.compile(
    r"aten::(fft_|stft|istft|linalg_(?!vecdot|cross|norm|matrix_norm|vander)|(log|slog)?det$|_)"
)


@cache
def table() -> "dict[torch._ops.OperatorBase, Callable[..., Any]]":
    """Every operation of aten that has no builder and that torch can write out -> how."""
    torch = load_torch()
    found: dict[Any, Callable[..., Any]] = dict(torch.export.default_decompositions().items())
    return {op: how for op, how in found.items() if _is_to_go(op)}


def _is_to_go(op: Any) -> bool:
    schema = getattr(op, "_schema", None)
    if schema is None or not schema.name.startswith("aten::") or schema.is_mutable:
        return False
    seeded = load_torch().Tag.nondeterministic_seeded in op.tags  # a random number is to stay the same one
    return not (seeded or WHOLE.match(schema.name) or known(op))
