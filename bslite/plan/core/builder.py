"""The planner's working state, which lowerings extend: values placed so far, buffers, constants, steps."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

from bslite.kernels.contracts.activation import Activation
from bslite.kernels.contracts.record import Operand
from bslite.kernels.contracts.rows import GroupWork, RowWork
from bslite.ops import Shape
from bslite.ops.resized.resampling import Taps
from bslite.passes.layouts import channels_second
from bslite.plan.core.bands import Crop, Rows, hull
from bslite.plan.core.concats import Place
from bslite.plan.core.layouts import innermost
from bslite.plan.core.plan import Const, Flag, Step
from bslite.plan.core.views import NO_HALO, Buffer, Halo, View, channel_axis, contiguous, size_of
from bslite.spec import ModelSpec

FLAG_CELLS = 4  # of `kernels.cpu.runtime.flag`: whether it was raised, and a number
PAGE = 2048  # bytes: at this pixel stride (doubled by a strided layer) a tile's lines share one set of L1
PAGE_OF_WINDOWS = 1024  # the same where windows move, which read several lines


M = TypeVar("M")  # the machine
T = TypeVar("T")  # the planner's options
S = TypeVar("S", bound=Step)


class Target(Protocol[M, T, S]):
    """The parts of planning that differ between the kinds of machines."""

    @property
    def machine(self) -> M: ...

    @property
    def tuning(self) -> T: ...

    @property
    def over_reads(self) -> bool:
        """Whether kernels load whole vectors, and so read beyond the last element of a view."""

    @property
    def any_order(self) -> bool:
        """Whether elementwise kernels are as fast in any order of the axes."""

    @property
    def resizes_planes(self) -> bool:
        """Whether planes of contiguous pixels are resized as they lie, and signals in either order."""

    @property
    def pixel_padding(self) -> int:
        """Elements that keep pixels a page apart out of one set of L1."""

    def copy(self, b: "Builder[M, T, S]", source: View, target: View) -> None:
        """Append a strided copy between views of equal logical shape."""

    def fill(self, b: "Builder[M, T, S]", view: View, value: float) -> None:
        """Append steps that set every element of ``view`` to a float, or an int for integer cells."""

    def halo(self, b: "Builder[M, T, S]", view: View) -> None:
        """Append the steps that write the zeros around the images of ``view``."""

    def elementwise_step(
        self,
        b: "Builder[M, T, S]",
        function: str,
        operands: Sequence[View],
        y: View,
        act: Activation,
        flag: Operand | None,
    ) -> None:
        """Append ``y = act(function(*operands))``, a function of `contracts.elementwise`, the operands
        broadcast to y's shape. A result that does not fit a cell raises ``flag``.
        """

    def resample(self, b: "Builder[M, T, S]", x: View, y: View, axis: int, table: Taps) -> None:
        """Append ``y = x`` resized along one axis, both dense; or along the first or second of three, where
        signals are resized in either order.
        """

    def resize_image(self, b: "Builder[M, T, S]", x: View, y: View, rows: Taps, cols: Taps) -> None:
        """Append ``y = x`` resized along rows, then columns, channels innermost, by one tap or two."""

    def resize_planes(self, b: "Builder[M, T, S]", x: View, y: View, rows: Taps, cols: Taps) -> None:
        """Append ``y = x`` resized along rows, then columns, pixels innermost, by any taps."""

    def row_step(self, b: "Builder[M, T, S]", work: RowWork, x: View, y: View, axis: int) -> None:
        """Append ``work`` on rows from x to y, views of one shape in which ``axis`` is contiguous."""

    def in_lanes(self, work: RowWork) -> bool:
        """Whether `lane_step` does such work."""

    def lane_step(
        self, b: "Builder[M, T, S]", work: RowWork, x: View, y: View, axis: int, inner: int
    ) -> None:
        """Append ``work`` along ``axis`` from x to y, views of one shape in which axis ``inner`` is
        contiguous: its lanes stand side by side.
        """

    def group_step(self, b: "Builder[M, T, S]", work: GroupWork, x: View, y: View) -> bool:
        """Append a group norm from x to y, both with channels innermost; return False, without a step, where
        the pixels lie along too many axes.
        """


class Builder(Generic[M, T, S]):
    """Collects the steps of one plan. Every view that it returns lies in buffers that the plan owns.

    ``layerwise``: nothing may be fused, each value is to be had. ``halos``: zeros that a value's buffer has
    around its images.
    """

    def __init__(
        self,
        spec: ModelSpec,
        shapes: Mapping[str, Shape],
        target: Target[M, T, S],
        places: Mapping[str, Place],
        halos: Mapping[str, Halo] | None = None,
        crop: Crop | None = None,
        second: frozenset[str] | None = None,
        layerwise: bool = False,
    ) -> None:
        self.spec = spec
        self.shapes = shapes
        self.dtypes = spec.dtypes
        self.target = target
        self.crop = crop or Crop({}, shapes)
        self.layerwise = layerwise
        self.values: dict[str, View] = {}
        self.buffers: dict[str, Buffer] = {}
        self.consts: dict[str, Const] = {}
        self.steps: list[S] = []
        self.flags: list[Flag] = []
        self.layer: tuple[str, ...] = ()
        self.around: Any = None  # what a stack's builder knows of the plan around it; the target's
        self.line_sums: dict[str, View | None] = {}  # of values whose average a layer wants; None: not made
        #: Values in another form that several layers read, by view and form; the target's.
        self.rounded: dict[Any, View] = {}
        self.scaled: dict[View, Any] = {}  # views that a step just scales: how; the target's
        self.second = channels_second(spec, shapes) if second is None else second
        self._halos = halos or {}
        self._places = places
        self._direct: dict[str, View] = {}  # outputs that are written in place
        self._roots: dict[str, View] = {}
        self._const_names: dict[tuple[Any, ...], str] = {}

    @property
    def machine(self) -> M:
        """The machine that the plan is for."""
        return self.target.machine

    @property
    def tuning(self) -> T:
        """The planner's options."""
        return self.target.tuning

    # -- values ----------------------------------------------------------------------------------

    def inner(self, name: str) -> int:
        """The axis of the value ``name`` that is innermost by default: its channels."""
        return innermost(len(self.shapes[name]), name in self.second)

    def read(self, name: str, inner: int | None = None, halo: Halo = NO_HALO, exact: bool = False) -> View:
        """The value ``name`` with axis ``inner`` (default: channels) contiguous and at least ``halo`` zeros
        around it.

        A value with another layout is copied into a fresh buffer. A kernel that loads whole vectors reads
        beyond the last element, so a value in the caller's own array is copied too, unless the kernel is
        ``exact``.
        """
        return self.arranged(self.values[name], self.inner(name) if inner is None else inner, halo, exact)

    def arranged(
        self, view: View, inner: int | None = None, halo: Halo = NO_HALO, exact: bool = False
    ) -> View:
        """``view``, or a copy of it with the layout asked for; see `read`."""
        if not view.shape:
            return view
        inner = channel_axis(len(view.shape)) if inner is None else inner % len(view.shape)
        callers = view.buffer in self.buffers and self.buffers[view.buffer].kind == "input"
        safe = exact or not callers or not self.target.over_reads
        enough = safe and all(have >= need for have, need in zip(view.halo, halo, strict=True))
        if enough and (view.shape[inner] == 1 or view.strides[inner] == 1):
            return view
        fresh = self.fresh(view.shape, inner, halo)
        self.copy(view, fresh)
        return fresh

    def flat(self, view: View) -> View:
        """``view``, or a copy of it, row-major in its logical order."""
        expected = contiguous(view.shape)
        if all(n == 1 or s == e for n, s, e in zip(view.shape, view.strides, expected, strict=True)):
            return View(view.buffer, view.offset, view.shape, expected)
        fresh = self.dense(view.shape)
        self.copy(view, fresh)
        return fresh

    def reshaped(self, view: View, shape: Shape) -> View:
        """The elements of ``view`` in the same order under another shape; of a copy where strides cannot
        express it.
        """
        found = view.reshape(shape) or self.flat(view).reshape(shape)
        assert found is not None
        return found

    def write(self, name: str, inner: int | None = None, like: Sequence[View] = ()) -> View:
        """The view that the layer making ``name`` must write; recorded as the value of that name.

        A layer that takes axes in any order names what it reads, ``like``: where the model says nothing of
        the value's channels, its axes lie as they do in the first view of its shape.
        """
        shape = self.shapes[name]
        if shape:
            inner = self.inner(name) if inner is None else inner % len(shape)
        if name in self._places and inner == self.inner(name):
            place = self._places[name]
            root = self._root(place.root).slice(place.axis, place.start, place.start + shape[place.axis])
            view = self._rows_of(name, root, place.root)
        elif like and self.target.any_order and (found := self._lie_as(name, like)):
            view = found
        elif inner is None or inner == self.inner(name):
            view = self._rows_of(name, self._root(name), name)
        else:
            view = self.fresh(shape, inner, NO_HALO)
        self.values[name] = view
        return view

    def _lie_as(self, name: str, like: Sequence[View]) -> View | None:
        """A new buffer for the value ``name`` with its axes in the order of one in ``like``, where that is
        free to choose: of values of more axes than images have, that nothing is concatenated with.
        """
        shape = self.shapes[name]
        if len(shape) < 5 or name in self._roots or name in self._direct or name in self._halos:
            return None
        found = next((v for v in like if v.shape == shape and all(s > 0 for s in v.strides)), None)
        if found is None or name in self.second or any(p.root == name for p in self._places.values()):
            return None
        order = sorted(range(len(shape)), key=lambda a: -found.strides[a])
        dense = contiguous(tuple(shape[a] for a in order))
        view = View(
            self.buffer(size_of(shape)).name,
            0,
            shape,
            tuple(dense[order.index(a)] for a in range(len(shape))),
        )
        self._roots[name] = view
        return view

    def writable(self, name: str, inner: int) -> tuple[View, View]:
        """The view of ``name`` with axis ``inner`` contiguous that a kernel writes, and the value's own.

        The two differ where the value has a place with another layout; the caller then copies.
        """
        home = self.write(name, inner)
        if home.shape[inner] == 1 or home.strides[inner] == 1:
            return home, home
        return self.fresh(home.shape, inner, NO_HALO), home

    def like(self, view: View, name: str, other: str) -> View:
        """``view`` of the value ``name``, cut to the rows that the value ``other`` has here."""
        if name not in self.crop.rows or view.shape[2] == 1:
            return view
        start = self.crop.first(other) - self.crop.first(name)
        stop = start + self.shapes[other][2]
        assert 0 <= start <= stop <= view.shape[2], (name, other)
        return view if (start, stop) == (0, view.shape[2]) else view.slice(2, start, stop)

    def row_major(self, name: str) -> View:
        """A row-major view, which the layer making ``name`` writes and which becomes its value: the caller's
        array, if the output goes there as it is, else a new buffer.
        """
        shape, given = self.shapes[name], self._direct.get(name)
        plain = contiguous(shape)
        if given is not None and given.strides == plain and plain[self.inner(name) :] == (1,):
            home = self.write(name)  # or another place that it has
            if home == given:
                return home
        self.alias(name, view := self.dense(shape))
        return view

    def alias(self, name: str, view: View) -> None:
        """Record that ``name`` is another view of memory that already holds it."""
        self.values[name] = view

    def write_outputs_to(self, direct: Mapping[str, View]) -> None:
        """Let `write` put these values straight into the caller's arrays."""
        self._direct = dict(direct)

    def _root(self, name: str) -> View:
        """The buffer of a value, or of a concat and its parts, with all rows that one of them has here."""
        shape, inner = self.shapes[name], self.inner(name)
        if (rows := self._extents.get(name)) is not None:
            shape = (*shape[:2], rows[1] - rows[0], *shape[3:])
        if name not in self._roots and name in self._direct and shape == self.shapes[name]:
            view = self._direct[name]
            if not shape or shape[inner] == 1 or view.strides[inner] == 1:
                self._roots[name] = view
        if name not in self._roots:
            self._roots[name] = self.fresh(shape, inner, self._halos.get(name, NO_HALO))
        return self._roots[name]

    def _rows_of(self, name: str, view: View, root: str) -> View:
        """The rows of the value ``name`` in ``view``, which has those of the buffer of ``root``."""
        rows, all_rows = self.crop.rows.get(name), self._extents.get(root)
        if rows is None or all_rows is None or rows == all_rows:
            return view
        return view.slice(2, rows[0] - all_rows[0], rows[1] - all_rows[0])

    @functools.cached_property
    def _extents(self) -> dict[str, Rows]:
        """From the first to the last row that the values in a buffer have here, by the value or concat that
        owns it. A part of a concat may have more than the concat: a convolution reads it, too.
        """
        found = dict(self.crop.rows)
        for name, place in self._places.items():
            if place.root in found and name in self.crop.rows:
                found[place.root] = hull(found[place.root], self.crop.rows[name])
        return found

    # -- memory ----------------------------------------------------------------------------------

    def buffer(self, size: int) -> Buffer:
        """A new arena buffer of ``size`` elements."""
        buffer = Buffer(f"b{len(self.buffers)}", size)
        self.buffers[buffer.name] = buffer
        return buffer

    def dense(self, shape: Shape) -> View:
        """A new row-major buffer for ``shape``."""
        return View(self.buffer(size_of(shape)).name, 0, shape, contiguous(shape))

    def fresh(self, shape: Shape, inner: int, halo: Halo) -> View:
        """A new buffer for ``shape`` with axis ``inner`` innermost, the others in order, and the zeros of
        ``halo`` around H, W (the last two axes).
        """
        if not shape:
            return View(self.buffer(1).name, 0, (), ())
        order = [a for a in range(len(shape)) if a != inner] + [inner]
        top, left, bottom, right = halo
        padded = list(shape)
        if halo != NO_HALO:
            padded[-1] += left + right
            if top or bottom:
                padded[-2] += top + bottom
        strides = [0] * len(shape)
        step = 1
        for axis in reversed(order):
            strides[axis] = step
            step *= padded[axis]
            apart = PAGE if halo == NO_HALO else PAGE_OF_WINDOWS
            if axis == inner and step * 4 % apart == 0 and len(shape) > 1 and size_of(shape) > step:
                step += self.target.pixel_padding
        offset = top * strides[-2] + left * strides[-1] if halo != NO_HALO else 0
        view = View(self.buffer(step).name, offset, shape, tuple(strides), halo)
        if halo != NO_HALO:
            self.target.halo(self, view)
        return view

    def const(self, recipe: str, *keys: str, **args: Any) -> str:
        """The name of a constant; the same recipe, keys and arguments give the same one."""
        frozen = tuple(sorted((k, tuple(v) if isinstance(v, list) else v) for k, v in args.items()))
        identity = (recipe, keys, frozen)
        name = self._const_names.setdefault(identity, f"c{len(self.consts)}")
        self.consts.setdefault(name, Const(name, *identity))
        return name

    def flag(self, layer: str, text: str, beyond: bool = False) -> Operand:
        """A flag for an error in a step of ``layer``; ``{value}`` in ``text`` is a number that it gives.
        ``beyond``: the error is that the engine has no such number, see `Flag`.
        """
        self.flags.append(Flag(layer, text, beyond))
        self.buffers["flags"] = Buffer("flags", FLAG_CELLS * len(self.flags), "flags")
        return self.flag_of(len(self.flags) - 1)

    def flag_of(self, number: int) -> Operand:
        """The flag of that number, in the order in which they were made."""
        return Operand("flags", FLAG_CELLS * number)

    # -- steps -----------------------------------------------------------------------------------

    def copy(self, source: View, target: View) -> None:
        """Append a strided copy between views of equal logical shape."""
        self.target.copy(self, source, target)


AnyBuilder = Builder[Any, Any, Any]
