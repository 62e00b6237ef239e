"""From a model as described to layers as executed. The reference can check every rewrite."""

from bslite.passes.channels import batch_norm_scale_shift
from bslite.passes.fuse import Layer, fuse
from bslite.passes.order import by_level, most_alive
from bslite.passes.rewrite import readers
from bslite.passes.simplify import fold_batch_norms, simplify, simplify_for_gpu, why_not_folded

__all__ = [
    "Layer",
    "batch_norm_scale_shift",
    "by_level",
    "fold_batch_norms",
    "fuse",
    "most_alive",
    "readers",
    "simplify",
    "simplify_for_gpu",
    "why_not_folded",
]
