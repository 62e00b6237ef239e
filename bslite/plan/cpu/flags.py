"""Flags that steps inside stacks raise: they are the whole plan's, tied to each plan within."""

from bslite.kernels.contracts.record import Operand
from bslite.passes import Layer
from bslite.plan.core.views import Buffer
from bslite.plan.cpu.outside import Outside
from bslite.plan.cpu.step import CpuBuilder, End

#: The text of a flag that is no error: a number has no exact parts, and the run is done again without parts.
INEXACT = "a number whose parts of bfloat16 are not exact"


def inexact_flag(b: CpuBuilder, layer: Layer) -> Operand:
    """The flag of the whole plan for numbers that cannot be split; one for all layers."""
    around: Outside | None = b.around
    if around is None:
        known = next((n for n, (_, text) in enumerate(b.flags) if text == INEXACT), None)
        return b.flag(layer.name, INEXACT) if known is None else b.flag_of(known)
    flag = inexact_flag(around.builder, layer)
    if "flags" not in b.buffers:
        b.buffers["flags"] = Buffer("flags", around.builder.buffers["flags"].size, "outer")
        around.ends.append(End("flags", "flags", 0, 0))
    return flag
