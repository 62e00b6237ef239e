"""Norms that are written out."""

from typing import Any

import numpy as np

from bslite.frontends.common.moves import reshape
from bslite.frontends.common.site import Site


def normalised_by_batch(s: Site, x: Any, weight: Any | None, bias: Any | None, eps: float) -> Any:
    """Each channel of ``x [N, C, ...]`` by mean and variance of its values (arXiv 1502.03167)."""
    axes, one = tuple(a for a in range(x.rank) if a != 1), (1, x.shape[1], *(1,) * (x.rank - 2))
    mean = s.emit("mean", x, inner=one, axes=axes, keepdim=True)
    var = s.emit("var", x, inner=one, axes=axes, keepdim=True, correction=0.0)
    scale = s.emit("rsqrt", s.emit("add", var, s.const(np.float32(eps), "eps"), inner=one), inner=one)
    terms = [(op, p) for op, p in (("mul", weight), ("add", bias)) if p is not None]
    made = s.emit("sub", x, mean, inner=x.shape)
    made = s.emit("mul", made, scale, inner=x.shape) if terms else s.emit("mul", made, scale)
    for i, (op, p) in enumerate(terms):
        size = x.shape if i + 1 < len(terms) else None
        made = s.emit(op, made, reshape(s, p, one, last=False), inner=size)
    return made
