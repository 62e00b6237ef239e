"""Why a call runs in torch, in words; a module gives each reason once."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from bslite.dropin.place import KNOWN
from bslite.frontends.torch.parts import Refusal

TRAINING = "it is in training mode; bslite runs inference: call .eval()"
GRADIENTS = (
    "gradients are enabled in eval mode and a parameter or an input requires them: "
    "use torch.no_grad() or torch.inference_mode(), or optimize(..., training=True) to have them from bslite"
)
AUTOCAST = "autocast is active for CUDA; bslite has that of CPUs"
CASTS = "autocast is active, which bslite has in inference alone"
CAPTURED = (
    "a CUDA graph is being captured, and inputs like these have not been seen before; call the model with "
    "them before the capture"
)
MODES = "another tool is following torch's operations (a trace, a transform or a dispatch mode)"

CHANGES = (
    "the module's attributes, hooks, layers or buffers, or what its forward reads, change from call to call"
)
VALUES = "values of an input decide its sizes: those after the first get a trace when they come again"
SHARES = "its result lies in the memory of an input"
ENQUIRES = "sizes depend on values: {error}"
DECIDED = "values of an input decide its sizes, and there are traces for as many as bslite keeps"
ASSUMED = "its forward asks for values, which are others than those that its trace holds for"
DEPARTS = "its forward asks for values, which are others from call to call"
GIVEN = "its parameters are other tensors for the time of a call, as torch.func.functional_call has it"
SLOWER = "every part of it is faster in torch"
WAITS = "sizes or modes that are seldom: there are {traces} traces, so these get one at call {traces}"
FAULT = "bslite failed while it prepared such a call, which is a fault of its own: {error}"

DISTRIBUTED = (
    "a module that sums gradients of several processes does so from outside alone: "
    "DistributedDataParallel(bslite.optimize(module))"
)


def outside() -> str:
    """The reason in the surroundings of a call to run it in torch; empty if there is none."""
    if (
        torch._C._get_tracing_state() is not None
        or torch._C._len_torch_dispatch_stack() > 0
        or torch._C._functorch.peek_interpreter_stack() is not None
        or torch.autograd.forward_ad._current_level >= 0
    ):
        return MODES
    return AUTOCAST if torch.is_autocast_enabled("cuda") else ""


def distributed(module: torch.nn.Module) -> bool:
    """Whether a module or one inside it, such as a DistributedDataParallel, exchanges gradients."""
    names = (c.__module__ for m in module.modules() for c in type(m).__mro__)
    return any(name.startswith(("torch.nn.parallel.", "torch.distributed.")) for name in names)


def of_tensor(tensor: torch.Tensor) -> str:
    """The reason in an input to run the call in torch; empty if there is none."""
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        return f"an input is a {type(tensor).__name__}, not a plain tensor"
    if tensor.device.type not in KNOWN:
        return f"an input is on {tensor.device}; bslite has engines for {' and '.join(KNOWN)}"
    if tensor.layout != torch.strided:
        return f"an input is a {tensor.layout} tensor"
    if not tensor.numel():
        return f"an input is empty: {list(tensor.shape)}"
    return ""


@dataclass(frozen=True)
class Unsupported:
    """An operation that bslite has no op for, or not in this form."""

    operation: str
    layers: tuple[str, ...]
    uses: int

    def __str__(self) -> str:
        more = f" and {len(self.layers) - 8} more" if len(self.layers) > 8 else ""
        return f"{self.uses} x {self.operation}; at {', '.join(self.layers[:8])}{more}"


def grouped(refused: Sequence[Refusal]) -> tuple[Unsupported, ...]:
    """The refused operations, each with the number of uses and the layers."""
    places: dict[str, list[str]] = {}
    for refusal in refused:
        places.setdefault(refusal.what, []).append(refusal.layer or "the model's own forward")
    return tuple(Unsupported(what, tuple(dict.fromkeys(at)), len(at)) for what, at in places.items())


def unsupported(name: str, refused: Sequence[Refusal], share: float) -> str:
    """All that bslite has no op for, the most frequent first. ``share``: of the flops that torch runs."""
    lines = [
        f"model {name!r}: bslite lacks some of its operations; {100 * share:.1f} % of the flops is torch's:"
    ]
    lines += [f"  {item}" for item in sorted(grouped(refused), key=lambda item: -item.uses)]
    return "\n".join(lines)
