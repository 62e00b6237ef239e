"""One step of a module in torch, in float64 and in float32, beside the same through `bslite.optimize`."""

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

import bslite
from bslite.dropin.runner import runner_of

TINY = 2.0**-23
Step = Callable[[nn.Module, Sequence[Any]], Any]
Made = dict[str, Tensor | None]


def step(net: nn.Module, inputs: Sequence[Any]) -> Any:
    """Forward, a loss of all results, backward."""
    made = net(*inputs)
    loss: Any = sum(y.square().mean() + y.mean() for y in floats(made))
    loss.backward()
    return made


def floats(made: Any) -> list[Tensor]:
    """The tensors of floating point in a nested result."""
    leaves = torch.utils._pytree.tree_leaves(made)
    return [x for x in leaves if isinstance(x, Tensor) and x.is_floating_point()]


def alike(
    net: nn.Module, batches: Sequence[Sequence[Any]], run: Step = step, reason: str = "", **options: Any
) -> None:
    """Results, gradients and buffers of SGD on ``batches`` are as near to float64 as torch's in float32.

    ``reason``: what `report` gives as reason to leave calls to torch, none if "".
    """
    peer, exact = copy.deepcopy(net), copy.deepcopy(net).double()
    ours: Any = bslite.optimize(net, training=True, fallback="silent", **{"tune": False, **options})
    want, theirs, got = (_steps(module, batches, run) for module in (exact, peer, ours))
    assert set(got) == set(want)
    sizes = {key.partition(" ")[0]: 0.0 for key in want}
    for key, value in want.items():
        if value is not None:
            group = key.partition(" ")[0]
            sizes[group] = max(sizes[group], float(value.double().norm()))
    for key, value in want.items():
        own, other = got[key], theirs[key]
        if value is None or own is None or other is None:
            assert own is other is value is None, f"{key}: got {own}, expected {value}"
            continue
        assert (own.shape, own.dtype) == (other.shape, other.dtype), key
        if not value.is_floating_point():
            assert torch.equal(own, other), key
            continue
        error, bound = (float((x.double() - value).norm()) for x in (own, other))
        # A last place, not half of one: torch's result may be lucky where it is few numbers.
        least = 2 * TINY * max(float(value.norm()), 0.1 * sizes[key.partition(" ")[0]])
        assert error <= 4 * bound + least, f"{key}: error {error:.3g}, torch's {bound:.3g}"
    told = list(runner_of(ours).in_torch)
    assert reason in "; ".join(told) if reason else told == [], told


def _steps(net: nn.Module, batches: Sequence[Sequence[Any]], run: Step) -> Made:
    learnt = [p for p in net.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(learnt, 0.02) if learnt else None
    made: Made = {}
    for i, batch in enumerate(batches):
        inputs = [_own(x, next(net.parameters()).dtype) for x in batch]
        torch.manual_seed(i)  # of dropouts
        net.zero_grad()
        made |= {f"result/{i} {j}": y.detach().clone() for j, y in enumerate(floats(run(net, inputs)))}
        tensors = {f"x{j}": x for j, x in enumerate(inputs) if isinstance(x, Tensor) and x.requires_grad}
        for name, tensor in (*net.named_parameters(), *tensors.items()):
            made[f"gradient/{i} {name}"] = None if tensor.grad is None else tensor.grad.clone()
        if optimizer is not None:
            optimizer.step()
        made |= {f"buffer/{i} {name}": b.clone() for name, b in net.named_buffers()}
    return made


def _own(x: Any, dtype: torch.dtype) -> Any:
    """A copy of an input, in the module's precision."""
    if not isinstance(x, Tensor):
        return x
    made = x.detach().to(dtype) if x.is_floating_point() else x.detach()
    return made.clone().requires_grad_(x.requires_grad)
