"""What lowerings inside a stack do in the plan around it: once for all images, before them or after them; and
the flag that they share with it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from bslite.kernels.contracts.record import Operand
from bslite.ops import Shape
from bslite.passes import Layer
from bslite.plan.core.views import Buffer, View, contiguous, size_of
from bslite.plan.cpu.step import CpuBuilder, End

#: The text of a flag that is no error: a number has no exact parts, and the run is done again without parts.
INEXACT = "a number whose parts of bfloat16 are not exact"


@contextmanager
def of_layer(b: CpuBuilder, layer: tuple[str, ...]) -> Iterator[None]:
    """Steps appended here are those of ``layer``."""
    kept, b.layer = b.layer, layer
    yield
    b.layer = kept


@dataclass
class Outside:
    """The plan around a stack: its builder, the stack's batch, and the ends that tie both plans.

    ``shared``: the buffers within that all images share, and their views outside. ``read`` and ``written``:
    what the stack's step takes and makes besides its values. ``after``: what is appended behind that step.
    """

    builder: CpuBuilder
    batch: int
    ends: list[End] = field(default_factory=list)
    shared: dict[str, View] = field(default_factory=dict)
    read: list[View] = field(default_factory=list)
    written: list[View] = field(default_factory=list)
    after: list[Callable[[CpuBuilder], None]] = field(default_factory=list)

    def tie(self, inner: CpuBuilder, view: View, image: int) -> str:
        """A buffer of the plan within whose element 0 is the first of ``view``; images are so far apart."""
        end = f"tied{len(self.ends)}"
        _, last = view.extent
        callers = self.builder.buffers[view.buffer].kind == "input"
        inner.buffers[end] = Buffer(end, last - view.offset, "input" if callers else "outer")
        self.ends.append(End(end, view.buffer, view.offset, image))
        return end

    def share(self, inner: CpuBuilder, view: View) -> View:
        """The whole of a view outside, for all images."""
        end = self.tie(inner, view, 0)
        self.shared[end] = view
        return replace(view, buffer=end, offset=0)


class Parts(NamedTuple):
    """Partial sums ``[images, ...]``: ``here`` those of the images in this plan, ``all`` of them."""

    here: View
    all: View


def batch_of(b: CpuBuilder, view: View) -> int:
    """The number of images, of which ``view`` has those in this plan."""
    around: Outside | None = b.around
    return around.batch if around and view.shape[0] == 1 else view.shape[0]


def once(b: CpuBuilder, view: View, make: Callable[[CpuBuilder, View], View]) -> View:
    """What ``make`` computes of a value, where all images share it: before them, not for each."""
    around: Outside | None = b.around
    if around is None or view.buffer not in around.shared:
        return make(b, view)
    outer, whole = around.builder, around.shared[view.buffer]
    view = replace(view, buffer=whole.buffer, offset=whole.offset + view.offset)
    with of_layer(outer, b.layer):
        made = once(outer, view, make)
    around.read.append(made)
    return around.share(b, made)


def parts(b: CpuBuilder, images: int, shape: Shape) -> Parts:
    """Memory for partial sums, ``shape`` for each of the images of this plan."""
    around: Outside | None = b.around
    if around is None:
        whole = b.dense((images, *shape))
        return Parts(whole, whole)
    assert images == 1
    whole = around.builder.dense((around.batch, *shape))
    around.written.append(whole)
    end = around.tie(b, whole, size_of(shape))
    return Parts(View(end, 0, (1, *shape), contiguous((1, *shape))), whole)


def behind(b: CpuBuilder, finish: Callable[[CpuBuilder], None]) -> None:
    """Append steps that need what all images made: in a stack, behind it."""
    around: Outside | None = b.around
    if around is None:
        finish(b)
        return
    layer = b.layer

    def later(b: CpuBuilder) -> None:
        with of_layer(b, layer):
            finish(b)

    around.after.append(later)


def inexact_flag(b: CpuBuilder, layer: Layer) -> Operand:
    """The flag of the whole plan for numbers that cannot be split; one for all layers."""
    around: Outside | None = b.around
    if around is None:
        known = next((n for n, flag in enumerate(b.flags) if flag.text == INEXACT), None)
        return b.flag(layer.name, INEXACT) if known is None else b.flag_of(known)
    flag = inexact_flag(around.builder, layer)
    if "flags" not in b.buffers:
        b.buffers["flags"] = Buffer("flags", around.builder.buffers["flags"].size, "outer")
        around.ends.append(End("flags", "flags", 0, 0))
    return flag
