"""What declaring an op means: the one table that reference, planner, kernels, frontends, tests and docs read.

An op is a class, of which the table holds the one instance: a name, the attributes it takes, the parameters
it owns, a shape rule, its cost, the map from output rows to the input rows they need, and sample cases.
Shapes are logical, in the order the frameworks write them (``[N, C, H, W]`` for images); how an engine lays a
tensor out in memory is the engine's business.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from types import FunctionType
from typing import Any, ClassVar, NamedTuple

from bslite.errors import SpecError, UnsupportedError
from bslite.ops.values import Applied, Gradients, Param, Shape, Value

Attrs = Mapping[str, Any]
ParamShapes = Mapping[str, Shape]
#: What a value may be. Arithmetic is float32; the others are indices, counts, conditions and bytes.
DTYPES = ("float32", "int64", "int32", "bool", "uint8", "int8")
INTEGERS = ("int64", "int32")
BYTES = ("uint8", "int8")  # moved, compared and cast; arithmetic on them is float32's, on the same numbers
#: Integer dtype -> its least and its largest number; of 64 bits, those that an engine keeps.
RANGES = {
    **dict.fromkeys(INTEGERS, (-(2**31), 2**31 - 1)), "bool": (0, 1), "uint8": (0, 255), "int8": (-128, 127)
}  # fmt: skip


class Kind(Enum):
    """What an op does to its data; fusion rules are written in these terms, not in op names."""

    SOURCE = "source"  # makes a value out of nothing but parameters
    CONTRACTION = "contraction"  # sums products over channels: conv, linear, matmul
    WINDOW = "window"  # reads a window around each output: pooling
    POINTWISE = "pointwise"  # one output element from the same element of each input
    CHANNEL = "channel"  # pointwise, with a parameter per channel
    REDUCTION = "reduction"  # an output element depends on a whole axis: softmax, norms
    MOVEMENT = "movement"  # moves or copies elements, computes nothing


class RowMap(NamedTuple):
    """Affine map from output rows to input rows, the planner's whole knowledge of a halo.

    Output rows ``[a, b)`` read input rows ``[a*stride - before, (b-1)*stride - before + extent)``.
    """

    stride: int = 1
    before: int = 0
    extent: int = 1


@dataclass(frozen=True)
class Attr:
    """One attribute of an op. ``parse`` brings any accepted spelling to the one stored form."""

    name: str
    parse: Callable[[Any], Any]
    default: Any = ...  # ``...``: required
    doc: str = ""


@dataclass(frozen=True)
class Case:
    """A sample configuration of an op: drives correctness tests, benchmarks and the docs' op table."""

    label: str
    inputs: Sequence[Shape]
    params: Mapping[str, Shape] = field(default_factory=dict)
    attrs: Mapping[str, Any] = field(default_factory=dict)
    dtypes: Sequence[str] = ()  # of the inputs; float32 where it ends
    integers: tuple[int, int] = (-9, 10)  # what integer inputs are drawn from, the upper end excluded
    param_dtypes: Mapping[str, str] = field(default_factory=dict)  # role -> dtype, float32 where it has none


def holds(dtype: str, value: float) -> bool:
    """Whether a number can be of the dtype."""
    if dtype == "float32":
        return True
    low, high = RANGES[dtype]
    return low <= value <= high and value == int(value)


def case(label: str, *inputs: Shape, dtypes: Sequence[str] = (), **attrs: Any) -> Case:
    """A sample case of an op without parameters."""
    return Case(label, inputs, attrs=attrs, dtypes=dtypes)


class Op:
    """Base of all op declarations; see the module's docstring. Subclasses register themselves."""

    name: ClassVar[str]
    kind: ClassVar[Kind]
    arity: ClassVar[tuple[int, int]] = (1, 1)  # least and most inputs
    params: ClassVar[Mapping[str, bool]] = {}  # role -> required?
    attrs: ClassVar[tuple[Attr, ...]] = ()
    sample_range: ClassVar[tuple[float, float] | None] = None  # of its cases' inputs; None: normal noise
    torch_name: ClassVar[str] = ""
    onnx_name: ClassVar[str] = ""
    samples: ClassVar[Sequence[Case]] = ()  # see `cases`
    carries: ClassVar[bool] = False  # moves values of any one dtype as they are
    #: Takes indices or makes integers that can turn out wrong only while running: the engine then raises.
    may_fail: ClassVar[bool] = False
    sums_images: ClassVar[bool] = False  # its value is a sum over the images of a batch
    cost: ClassVar[int] = 0  # flops per element of the output, where those are all alike

    @property
    def plain(self) -> str:
        """The name of the op that this one is where its parameters are constants."""
        return self.name

    def given(self, inputs: int) -> tuple[str, ...]:
        """The roles of the parameters that the last of ``inputs`` inputs are."""
        return ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" not in cls.__dict__:
            return  # a shared base of a family
        if cls.name in REGISTRY:
            raise RuntimeError(f"op {cls.name!r} is declared twice")
        REGISTRY[cls.name] = cls()

    def shape(self, ins: Sequence[Shape], params: ParamShapes, attrs: Attrs) -> Shape:
        """Output shape, or SpecError saying what came and what was expected."""
        return ins[0]

    def dtype(self, ins: Sequence[str], params: Mapping[str, str], attrs: Attrs) -> str:
        """dtype of the output, or SpecError.

        By default all inputs are float32, or all of one dtype if the op ``carries`` any.
        """
        first = ins[0] if self.carries and ins else "float32"
        for i, got in enumerate(ins):
            if got != first:
                raise SpecError(f"op {self.name!r}: input {i} is {got}, expected {first}")
        for role, got in params.items():
            if got != "float32":
                raise SpecError(f"op {self.name!r}: parameter {role!r} is {got}, expected float32")
        return first

    def flops(self, ins: Sequence[Shape], out: Shape, params: ParamShapes, attrs: Attrs) -> int:
        """Floating-point operations, a multiply-add counted as two."""
        return self.cost * math.prod(out)

    def traffic(self, ins: Sequence[Shape], out: Shape, params: ParamShapes, attrs: Attrs) -> int:
        """Compulsory bytes in float32: every element once, of inputs those that are read at least."""
        read = sum(self.elements_read(i, ins, out) for i in range(len(ins)))
        return 4 * (read + sum(map(math.prod, params.values())) + math.prod(out))

    def elements_read(self, index: int, ins: Sequence[Shape], out: Shape) -> int:
        """The elements of the input ``index`` that are read at least."""
        return math.prod(ins[index])

    def rows(self, params: ParamShapes, attrs: Attrs) -> RowMap | None:
        """Output rows -> input rows along axis 2, or None where an output row may need every input row: rows
        of an image, elements of a signal.

        A pointwise op reads the same row of each input; an input of one row, or with no such axis, it reads
        whole.
        """
        return RowMap() if self.kind in (Kind.POINTWISE, Kind.CHANNEL) else None

    def keeps_images_apart(self, ranks: Sequence[int], attrs: Attrs) -> bool:
        """Whether index n along axis 0 of the output depends on index n of each input alone.

        Asked only of layers whose inputs, but for those that all images `share`, and output have the batch as
        their axis 0; ``ranks`` are those of these inputs. Of an op that `sums_images` the answer is about a
        part of its sum for each image.
        """
        return True

    def share(self, inputs: int) -> range:
        """The inputs, of so many, that all images of a batch share: weights, numbers of channels."""
        return range(0)

    def with_values(self, ins: Sequence[Value], params: Mapping[str, Value], attrs: Attrs) -> Value:
        """The op where its parameters are values, as nodes: by default `NAME_given`, which reads them.

        Raises UnsupportedError if there is none.
        """
        name = f"{self.name}_given"
        if name not in REGISTRY:
            raise UnsupportedError(
                f"op {self.name!r} takes parameters that are constants, none that are values"
            )
        weights = [params[role] for role in self.params if role in params]
        return ins[0].tape.put(name, [*ins, *weights], **attrs)

    def as_nodes(self, ins: Sequence[Value], params: Mapping[str, Param], attrs: Attrs) -> Value | None:
        """The op as nodes that have gradients; None: it has its own, or none."""
        return None

    def keep(self, inputs: Sequence[Value], attrs: Attrs) -> tuple[Value, Value] | None:
        """Nodes that make the op's value, and among them one that its gradient needs; None: it needs none."""
        return None

    def vjp(self, at: Applied, grad: Value) -> Gradients:
        """The gradients of what a node reads, as nodes, where ``grad`` is that of its value.

        Those that it leaves out are zero. Raises UnsupportedError if the op has none.
        """
        raise UnsupportedError(f"op {self.name!r} has no gradient")

    def cases(self) -> Sequence[Case]:
        """Sample configurations, edge cases first: `samples`, or what the op's family adds to them."""
        return self.samples


REGISTRY: dict[str, Op] = {}


def declare(
    base: type[Op], name: str, doc: str, onnx: str = "", torch: str | None = None, **variables: Any
) -> None:
    """Declare the op ``name``: a subclass of ``base`` that differs from it in class variables alone.

    A function among them takes no ``self``. ``doc`` says what the op computes; ``onnx`` and ``torch`` are its
    names there, in torch ``name`` if None. Raises TypeError for a variable that ``base`` does not have.
    """
    known = {v for c in base.__mro__ for v in (*vars(c), *getattr(c, "__annotations__", {}))}
    if unknown := sorted(set(variables) - known):
        raise TypeError(f"op {name!r}: {base.__name__} has no {', '.join(map(repr, unknown))}")
    variables = {k: staticmethod(v) if isinstance(v, FunctionType) else v for k, v in variables.items()}
    variables |= {"onnx_name": onnx, "torch_name": name if torch is None else torch}
    title = "".join(map(str.capitalize, name.split("_")))
    type(title, (base,), {"name": name, "__doc__": doc, "__module__": base.__module__, **variables})


def get(name: str) -> Op:
    """The op called ``name``; SpecError listing near misses if there is none."""
    op = REGISTRY.get(name)
    if op is None:
        import difflib

        near = difflib.get_close_matches(name, REGISTRY, n=3)
        hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
        raise SpecError(f"unknown op {name!r}{hint}")
    return op


def parse_attrs(op: Op, given: Mapping[str, Any]) -> dict[str, Any]:
    """All attributes of ``op`` in stored form, defaults filled in. Raises SpecError."""
    known = {a.name for a in op.attrs}
    extra = sorted(set(given) - known)
    if extra:
        raise SpecError(
            f"op {op.name!r} has no attribute {', '.join(map(repr, extra))}; it takes {sorted(known)}"
        )
    parsed: dict[str, Any] = {}
    for attr in op.attrs:
        value = given.get(attr.name, attr.default)
        if value is ...:
            raise SpecError(f"op {op.name!r} needs attribute {attr.name!r}")
        try:
            parsed[attr.name] = attr.parse(value)
        except (TypeError, ValueError) as e:
            raise SpecError(f"op {op.name!r}: attribute {attr.name}={value!r}: {e}") from None
    return parsed


def infer(op: Op, ins: Sequence[Shape], params: ParamShapes, attrs: Attrs) -> Shape:
    """Check arity and parameter roles, then apply the shape rule. ``attrs`` must be parsed."""
    least, most = op.arity
    if not least <= len(ins) <= most:
        want = f"{least}" if least == most else f"{least} to {most}"
        raise SpecError(f"op {op.name!r} takes {want} input(s), got {len(ins)}")
    missing = [r for r, required in op.params.items() if required and r not in params]
    if missing:
        raise SpecError(f"op {op.name!r} needs parameter {', '.join(map(repr, missing))}")
    extra = sorted(set(params) - set(op.params))
    if extra:
        raise SpecError(f"op {op.name!r} has no parameter {', '.join(map(repr, extra))}")
    out = op.shape(ins, params, attrs)
    if any(d < 1 for d in out):
        raise SpecError(
            f"op {op.name!r}: input {list(ins[0]) if ins else []} is too small, output would be {list(out)}"
        )
    return out
