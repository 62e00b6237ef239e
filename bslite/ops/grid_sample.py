"""Elements at computed positions of an image or volume, and between them."""

import math
from collections.abc import Sequence

from bslite.errors import SpecError
from bslite.ops import attrs as a
from bslite.ops import checks
from bslite.ops.core import Attr, Attrs, Kind, Op, ParamShapes, Shape, case

PADDINGS = ("zeros", "border", "reflection")
MODES = ("nearest", "linear", "cubic")


class GridSample(Op):
    """``y[n, c, i, j]`` = x[n, c] at the position (x, y) in ``grid[n, i, j]``; at (x, y, z) of a volume.

    -1 and 1 are the outer edges of the first and last element, or their centres (``align_corners``). Linear
    is the sum of the 2 elements around along each axis, cubic of 4 (Keys, a = -3/4). Beyond the edges lie
    zeros, the element at the border, or the image mirrored. A position that is NaN or infinite gives what
    torch gives: among zeros NaN in images and 0 in volumes or for the nearest, else an element at the border.
    """

    name = "grid_sample"
    kind = Kind.MOVEMENT
    arity = (2, 2)
    attrs = (
        Attr("mode", a.choice(*MODES), "linear"),
        Attr("padding", a.choice(*PADDINGS), "zeros", "what lies beyond the edges"),
        Attr("align_corners", a.boolean, False),
    )
    torch_name = "grid_sample"
    onnx_name = "GridSample"

    def shape(self, ins: Sequence[Shape], params: ParamShapes, attrs: Attrs) -> Shape:
        x, grid = ins
        checks.rank_at_least(self.name, x, 4, "images [N, C, H, W] or volumes [N, C, D, H, W]")
        if len(x) > 5 or (len(x) == 5 and attrs["mode"] == "cubic"):
            raise SpecError(
                f"op 'grid_sample': mode {attrs['mode']!r} of a tensor of rank {len(x)}: {list(x)}"
            )
        if len(grid) != len(x) or grid[0] != x[0] or grid[-1] != len(x) - 2:
            want = ", ".join(["N", *("D", "H", "W")[5 - len(x) :], str(len(x) - 2)])
            raise SpecError(f"op 'grid_sample': grid {list(grid)} for {list(x)}, expected [{want}]")
        return (*x[:2], *grid[1:-1])

    def flops(self, ins: Sequence[Shape], out: Shape, params: ParamShapes, attrs: Attrs) -> int:
        taps = {"nearest": 0, "linear": 2, "cubic": 4}[attrs["mode"]] ** (len(out) - 2)
        return 2 * taps * math.prod(out)

    samples = [
        *(
            case(
                f"{label}, {mode}, {padding}, {corners}", x, (x[0], *out, len(out)),
                mode=mode, padding=padding, align_corners=corners,
            )
            for label, x, out, modes in (
                ("one pixel", (1, 2, 1, 1), (2, 3), MODES),
                ("an image", (2, 19, 5, 7), (6, 5), MODES),
                ("a volume", (2, 3, 4, 3, 5), (3, 2, 4), MODES[:2]),
            )
            for mode in modes
            for padding in PADDINGS
            for corners in (False, True)
        ),
        case("channels, linear", (1, 133, 8, 8), (1, 9, 9, 2), mode="linear"),
    ]  # fmt: skip
