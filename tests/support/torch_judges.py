"""Where the calls of torch are registered that judge the ops: op name -> a call on tensors."""

from collections.abc import Callable

import torch

from bslite.cli.peer.ops import TORCH_OPS

Tensor = torch.Tensor
ORACLE: dict[str, Callable[..., Tensor]] = dict(TORCH_OPS)


def oracle(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Register ``function`` for the op it is named after."""
    ORACLE[function.__name__.rstrip("_")] = function
    return function
