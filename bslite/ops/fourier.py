"""Discrete Fourier transforms. A complex number is a pair: the last axis, of two, holds both parts."""

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from bslite.errors import SpecError
from bslite.ops import attrs as a
from bslite.ops import checks
from bslite.ops.core import Attr, Attrs, Case, Kind, Op, ParamShapes, Shape, case
from bslite.ops.values import Applied, Gradients, Value

#: What a transform reads: complex numbers, real ones, or the first half of a transform of real ones.
SOURCES = ("complex", "real", "half")
MOST = 2**22  # points of a transform: a thread's memory for it is some 100 MB
#: Lengths with a larger prime factor are convolved with a chirp, and have fewer points at most. A pass of so
#: large a radix would take a time proportional to it for each point (64 signals of 1,009 points, two cores of
#: an Emerald Rapids: 1,190 us in one pass, 190 with a chirp).
LARGEST_PRIME, MOST_OF_PRIMES = 150, 2**17


@functools.cache
def prime_factors(n: int) -> tuple[int, ...]:
    """The prime factors of a number, small ones first, each as often as it is one."""
    found, factor = list[int](), 2
    while factor * factor <= n:
        while n % factor == 0:
            found.append(factor)
            n //= factor
        factor += 1 if factor == 2 else 2
    return (*found, *([n] if n > 1 else []))


def too_long(length: int) -> str:
    """What is wrong with a length, if it is longer than transforms may be; else empty."""
    largest = max(prime_factors(length), default=1) if length <= MOST else length
    if length <= (MOST if largest <= LARGEST_PRIME else MOST_OF_PRIMES):
        return ""
    primes = f"or {MOST_OF_PRIMES} where a prime factor is above {LARGEST_PRIME}"
    return f"a length of {length}; expected at most {MOST}, {primes}"


def points_of(attrs: Attrs) -> tuple[int, int]:
    """How many points along the axis a transform reads at most, and how many it makes."""
    length, half = attrs["length"], attrs["length"] // 2 + 1
    return half if attrs["source"] == "half" else length, half if attrs["onesided"] else length


def windowed(label: str, x: Shape, **attrs: Any) -> Case:
    """A sample case with a window, along axis 1."""
    return Case(label, [x], {"window": (x[1],)}, {"axis": 1, **attrs})


class Fourier(Op):
    """``y[k] = scale * sum_n x[n] exp(-2 pi i n k / length)`` along an axis; the inverse with the other sign.

    Points of x that are missing are zeros. ``source``: x holds "complex" numbers, "real" ones, or the first
    "half" (``length // 2 + 1`` points) of what a transform of real numbers made: its points but the ends
    count twice, the other one as its conjugate, and y is real. ``onesided``: only the first half of y is
    made. ``real``: only its real part. Points of x are times those of ``window``, if there is one. Complex
    numbers are a last axis of two, real and imaginary part.
    """

    name = "fourier"
    kind = Kind.REDUCTION
    params: ClassVar[Mapping[str, bool]] = {"window": False}
    attrs = (
        Attr("axis", a.integer(), doc="of the points; not the pairs'"),
        Attr("length", a.integer(1), doc="points of the transform"),
        Attr("source", a.choice(*SOURCES), "complex"),
        Attr("inverse", a.boolean, False),
        Attr("onesided", a.boolean, False, "of real numbers only"),
        Attr("real", a.boolean, False, "of a half always"),
        Attr("scale", a.real_between(-1e38, 1e38), 1.0),
    )
    torch_name = "fft.fft, fft.ifft, fft.rfft, fft.irfft, fft.hfft, stft, istft"
    onnx_name = "DFT"

    def shape(self, ins: Sequence[Shape], params: ParamShapes, attrs: Attrs) -> Shape:
        x, source = ins[0], attrs["source"]
        axis, paired = checks.axis(self.name, attrs["axis"], len(x)), source != "real"
        if paired and (x[-1] != 2 or axis == len(x) - 1):
            raise SpecError(
                f"op 'fourier': input {list(x)}, axis {axis}, of {source} numbers: expected them as pairs "
                "along a last axis of size 2, behind the axis"
            )
        if attrs["onesided"] and source != "real":
            raise SpecError("op 'fourier': onesided, expected source='real'")
        if source == "half" and not attrs["real"]:
            raise SpecError("op 'fourier': of source='half', expected real=True: it makes real numbers")
        if refused := too_long(attrs["length"]):
            raise SpecError(f"op 'fourier': {refused}")
        most, made = points_of(attrs)
        if x[axis] > most:
            raise SpecError(f"op 'fourier': {x[axis]} points along axis {axis}, expected at most {most}")
        if params.get("window", (x[axis],)) != (x[axis],):
            raise SpecError(
                f"op 'fourier': parameter 'window' has shape {list(params['window'])}, expected [{x[axis]}]"
            )
        plain = x[:-1] if paired else x
        return (*plain[:axis], made, *plain[axis + 1 :], *(() if attrs["real"] else (2,)))

    def flops(self, ins: Sequence[Shape], out: Shape, params: ParamShapes, attrs: Attrs) -> int:
        """``5 n log2 n`` for a complex signal, half of that for a real one: the customary count."""
        n, axis = attrs["length"], attrs["axis"] % len(ins[0])
        paired = attrs["source"] != "real"
        signals = math.prod(ins[0]) // ins[0][axis] // (2 if paired else 1)
        each = 5 * n * math.log2(n) if n > 1 else 1
        return round(signals * each / (2 if attrs["source"] != "complex" else 1))

    def keeps_images_apart(self, ranks: Sequence[int], attrs: Attrs) -> bool:
        return attrs["axis"] % ranks[0] != 0

    def vjp(self, at: Applied, grad: Value) -> Gradients:
        """The conjugate transpose: the transform with the other sign, of as many points as x has."""
        (x,), attrs = at.inputs, at.attrs
        axis, length, source = attrs["axis"] % len(x.shape), attrs["length"], attrs["source"]
        most, _ = points_of(attrs)
        back = grad.op(
            "fourier", axis=axis, length=length, inverse=not attrs["inverse"], scale=attrs["scale"],
            source="real" if attrs["real"] else "complex", onesided=source == "half", real=source == "real",
        )  # fmt: skip
        along = [n if i == axis else 1 for i, n in enumerate(back.shape)]
        if source == "half":
            twice = [1.0 if k in (0, length / 2) else 2.0 for k in range(most)]
            back = back * grad.tape.constant(twice).reshape(*along)
        back = back.sliced(axis, 0, x.shape[axis])
        made: dict[int | str, Value] = {0: back}
        if "window" in at.params:
            along[axis] = x.shape[axis]
            made[0] = back * at.param("window").reshape(*along)
            made["window"] = (back * x).sum(*(i for i in range(len(along)) if i != axis))
        return made

    samples = [
        case("one point", (3, 1, 2), axis=1, length=1),
        case("rows", (5, 16, 2), axis=1, length=16),
        case("rows, inverse", (3, 20, 2), axis=1, length=20, inverse=True, scale=0.05),
        case("odd factors", (2, 3, 105, 2), axis=2, length=105),
        case("a prime", (2, 37, 2), axis=1, length=37, inverse=True),
        case("a large prime", (3, 167, 2), axis=1, length=167),
        case("zeros behind", (7, 19, 2), axis=1, length=48),
        case("in lanes", (2, 24, 37, 2), axis=1, length=24, inverse=True),
        case("long rows", (2, 384, 2), axis=1, length=384),
        case("long rows, of any length", (1, 437, 2), axis=1, length=437, inverse=True, scale=0.5),
        case("first axis", (12, 9, 2), axis=0, length=12),
        case("real part", (3, 30, 2), axis=1, length=30, real=True),
        case("real", (4, 36), axis=1, length=36, source="real"),
        case("real, one side", (20, 50), axis=-1, length=50, source="real", onesided=True),
        case("real, an odd length", (3, 45), axis=1, length=45, source="real", onesided=True),
        case("real, a large prime", (2, 389), axis=1, length=2 * 389, source="real", onesided=True),
        case("real, in lanes", (2, 14, 33), axis=1, length=14, source="real", onesided=True),
        case("real, inverse", (2, 7, 30), axis=2, length=32, source="real", inverse=True, scale=1 / 32),
        case("real to real", (3, 21), axis=1, length=28, source="real", real=True),
        case("real, long rows", (3, 1024), axis=1, length=1024, source="real", onesided=True),
        case("real, long rows, both sides", (2, 700), axis=1, length=768, source="real", inverse=True),
        case("real, long rows of odd length", (2, 693), axis=1, length=693, source="real", onesided=True),
        case("half", (5, 18, 2), axis=1, length=34, source="half", real=True, inverse=True, scale=1 / 34),
        case("half, an odd length", (5, 18, 2), axis=1, length=35, source="half", real=True, inverse=True),
        case("half, forwards", (2, 11, 2), axis=1, length=24, source="half", real=True),
        case("half, a large prime", (2, 200, 2), axis=1, length=467, source="half", real=True, inverse=True),
        case("half, in lanes", (2, 9, 21, 2), axis=1, length=16, source="half", real=True, inverse=True),
        case("half, long rows", (2, 513, 2), axis=1, length=1024, source="half", real=True, inverse=True),
        case("half, long rows, forwards", (1, 347, 2), axis=1, length=693, source="half", real=True),
        windowed("window", (3, 30), length=32, source="real", onesided=True),
        windowed("window, in lanes", (2, 25, 37), length=25, source="real", onesided=True),
        windowed("window, of pairs", (5, 20, 2), length=20),
        windowed("window, in lanes of pairs", (2, 20, 21, 2), length=20, inverse=True),
        windowed("window, long rows", (2, 900), length=1024, source="real", onesided=True),
        windowed("window, long rows of odd length", (2, 600), length=693, source="real", onesided=True),
        windowed("window, long rows of pairs", (1, 437, 2), length=512, real=True),
        windowed("window, of a half", (1, 347, 2), length=693, source="half", real=True),
    ]
