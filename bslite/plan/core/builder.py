"""The planner's working state: values placed so far, buffers, constants, steps. Lowerings talk to this."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bslite.explore.cpu import Loops
from bslite.machine import Machine
from bslite.ops import RowMap, Shape
from bslite.passes import Layer
from bslite.passes.families import CONVS, TRANSPOSED
from bslite.plan.core.bands import Crop
from bslite.plan.core.concats import Place
from bslite.plan.core.layouts import channels_second, innermost
from bslite.plan.core.plan import Const, Step, accesses
from bslite.plan.core.views import NO_HALO, Buffer, View, channel_axis, contiguous, size_of
from bslite.plan.core.windows import windows_of
from bslite.spec import ModelSpec

Halo = tuple[int, int, int, int]
FLAG_CELLS = 4  # of `kernels.cpu.runtime.flag`: was it raised, and a number
PAGE = 2048  # bytes: at this pixel stride (doubled by a strided layer) a tile's lines meet in one set of L1


def wider(a: Halo, b: Halo) -> Halo:
    """The least halo that holds both."""
    return max(a[0], b[0]), max(a[1], b[1]), max(a[2], b[2]), max(a[3], b[3])


class Builder:
    """Collects the steps of one plan. Views handed out are always inside buffers the plan owns.

    ``layerwise``: nothing may be fused. ``loops``: those of recurrent layers, where they are not to be
    chosen.
    """

    def __init__(
        self,
        spec: ModelSpec,
        shapes: Mapping[str, Shape],
        machine: Machine,
        halos: Mapping[str, Halo],
        places: Mapping[str, Place],
        crop: Crop | None = None,
        second: frozenset[str] | None = None,
        layerwise: bool = False,
        loops: Loops | None = None,
    ) -> None:
        self.spec = spec
        self.shapes = shapes
        self.dtypes = spec.dtypes
        self.machine = machine
        self.crop = crop or Crop({}, shapes)
        self.layerwise = layerwise
        self.loops = loops
        self.values: dict[str, View] = {}
        self.buffers: dict[str, Buffer] = {}
        self.consts: dict[str, Const] = {}
        self.steps: list[Step] = []
        self.flags: list[tuple[str, str]] = []
        self.layer: tuple[str, ...] = ()
        self.second = channels_second(spec, shapes) if second is None else second
        self._halos = halos
        self._places = places
        self._direct: dict[str, View] = {}  # outputs to be written in place
        self._roots: dict[str, View] = {}
        self._const_names: dict[tuple[Any, ...], str] = {}

    # -- values ----------------------------------------------------------------------------------

    def inner(self, name: str) -> int:
        """The axis of the value ``name`` that lies innermost as a rule: its channels."""
        return innermost(len(self.shapes[name]), name in self.second)

    def read(self, name: str, inner: int | None = None, halo: Halo = NO_HALO, exact: bool = False) -> View:
        """The value ``name`` with contiguous axis ``inner`` (default: channels) and at least ``halo`` zeros
        around.

        Copied into a fresh buffer if it does not lie so. A kernel that loads whole vectors reads beyond the
        last element,
        so what is in the caller's own array is copied too, unless the kernel is ``exact``.
        """
        return self.arranged(self.values[name], self.inner(name) if inner is None else inner, halo, exact)

    def arranged(
        self, view: View, inner: int | None = None, halo: Halo = NO_HALO, exact: bool = False
    ) -> View:
        """``view``, or a copy of it that lies as asked; see `read`."""
        if not view.shape:
            return view
        inner = channel_axis(len(view.shape)) if inner is None else inner % len(view.shape)
        callers = view.buffer in self.buffers and self.buffers[view.buffer].kind == "input"
        enough = (exact or not callers) and all(
            have >= need for have, need in zip(view.halo, halo, strict=True)
        )
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
        buffer = self.buffer(size_of(view.shape))
        fresh = View(buffer.name, 0, view.shape, expected)
        self.copy(view, fresh)
        return fresh

    def write(self, name: str, inner: int | None = None) -> View:
        """Where the layer that makes ``name`` must write it; also records it as the value of that name."""
        shape = self.shapes[name]
        if shape:
            inner = self.inner(name) if inner is None else inner % len(shape)
        if name in self._places and inner == self.inner(name):
            place = self._places[name]
            view = self._root(place.root).slice(place.axis, place.start, place.start + shape[place.axis])
        elif inner is None or inner == self.inner(name):
            view = self._root(name)
        else:
            view = self.fresh(shape, inner, NO_HALO)
        self.values[name] = view
        return view

    def like(self, view: View, name: str, other: str) -> View:
        """``view`` of the value ``name``, cut to the rows that the value ``other`` has here."""
        if len(view.shape) != 4 or view.shape[2] == 1 or name not in self.crop.rows:
            return view
        start = self.crop.first(other) - self.crop.first(name)
        stop = start + self.shapes[other][2]
        assert 0 <= start <= stop <= view.shape[2], (name, other)
        return view if (start, stop) == (0, view.shape[2]) else view.slice(2, start, stop)

    def alias(self, name: str, view: View) -> None:
        """Record that ``name`` is another view of memory that holds it already."""
        self.values[name] = view

    def write_outputs_to(self, direct: Mapping[str, View]) -> None:
        """Values that `write` should put straight into the caller's arrays."""
        self._direct = dict(direct)

    def _root(self, name: str) -> View:
        shape, inner = self.shapes[name], self.inner(name)
        if name not in self._roots and name in self._direct:
            view = self._direct[name]
            if not shape or shape[inner] == 1 or view.strides[inner] == 1:
                self._roots[name] = view
        if name not in self._roots:
            self._roots[name] = self.fresh(shape, inner, self._halos.get(name, NO_HALO))
        return self._roots[name]

    # -- memory ----------------------------------------------------------------------------------

    def buffer(self, size: int) -> Buffer:
        """A new arena buffer of ``size`` elements."""
        buffer = Buffer(f"b{len(self.buffers)}", size)
        self.buffers[buffer.name] = buffer
        return buffer

    def fresh(self, shape: Shape, inner: int, halo: Halo) -> View:
        """A new buffer for ``shape`` with axis ``inner`` innermost, the others in order, zeros of ``halo``
        around H, W (the last two axes).
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
            if axis == inner and step * 4 % PAGE == 0 and len(shape) > 1 and size_of(shape) > step:
                step += self.pixel_padding()
        offset = top * strides[-2] + left * strides[-1] if halo != NO_HALO else 0
        view = View(self.buffer(step).name, offset, shape, tuple(strides), halo)
        if halo != NO_HALO:
            self._fill_halo(view)
        return view

    def pixel_padding(self) -> int:
        """Elements that keep pixels a page apart out of one set of L1."""
        return self.machine.lanes

    def const(self, recipe: str, *keys: str, **args: Any) -> str:
        """The name of a constant; the same recipe, keys and arguments give the same one."""
        frozen = tuple(sorted((k, tuple(v) if isinstance(v, list) else v) for k, v in args.items()))
        identity = (recipe, keys, frozen)
        name = self._const_names.setdefault(identity, f"c{len(self.consts)}")
        self.consts.setdefault(name, Const(name, *identity))
        return name

    def flag(self, layer: str, text: str) -> tuple[str, int]:
        """Where a step of ``layer`` notes what is wrong; ``{value}`` in ``text`` is a number it gives."""
        self.flags.append((layer, text))
        self.buffers["flags"] = Buffer("flags", FLAG_CELLS * len(self.flags), "flags")
        return "flags", FLAG_CELLS * (len(self.flags) - 1)

    # -- steps -----------------------------------------------------------------------------------

    def step(
        self,
        kernel: str,
        items: int,
        args: dict[str, Any],
        operands: dict[str, tuple[str, int]],
        reads: Sequence[View] = (),
        writes: Sequence[View] = (),
        scratch: int = 0,
    ) -> None:
        """Append a step of the current layer, which uses ``scratch`` elements of its thread's own memory."""
        self.steps.append(
            Step(
                kernel, self.layer, items, args, operands, accesses(reads), accesses(writes), scratch=scratch
            )
        )

    def take_back(self, count: int) -> list[Step]:
        """The last ``count`` steps, taken off the plan; who takes them puts them in again."""
        taken = self.steps[len(self.steps) - count :]
        del self.steps[len(self.steps) - count :]
        return taken

    def copy(self, source: View, target: View) -> None:
        """Append a strided copy between views of equal logical shape."""
        from bslite.plan.cpu.ops.move import copy_step

        copy_step(self, source, target)

    def _fill_halo(self, view: View) -> None:
        from bslite.plan.cpu.ops.move import halo_step

        halo_step(self, view)


def halo_of(layer: Layer, maps: RowMap, crop: Crop) -> tuple[int, Halo, Halo]:
    """Where the first window of a convolution starts, in rows from row 0 of its input; the part of the
    padding that lies within the band; and the zeros it needs around that input: those beside it. Rows of a
    filter above or below the image are left out.
    """
    name = layer.node.inputs[0]
    top, left, bottom, right = layer.node.attrs["padding"]
    start, stop = -top, bottom
    if layer.name in crop.rows:
        (a, z), (first, last) = crop.rows[layer.name], crop.rows[name]
        start = a * maps.stride - top - first
        stop = (z - 1) * maps.stride - top + maps.extent - last
    return start, (max(0, -start), left, max(0, stop), right), (0, left, 0, right)


def halo_needs(
    layers: Sequence[Layer], places: Mapping[str, Place], spec: ModelSpec, crop: Crop
) -> dict[str, Halo]:
    """Zeros each buffer should have around its images, by the name of the value or concat that owns it."""
    needs: dict[str, Halo] = {}
    for layer in layers:
        if layer.node.op not in (*CONVS, *TRANSPOSED):
            continue
        name = layer.node.inputs[0]
        owner = name
        if name in places:
            if places[name].axis != 1:
                continue
            owner = places[name].root
        needs[owner] = wider(needs.get(owner, NO_HALO), layer_halo(layer, spec, crop))
    return needs


def layer_halo(layer: Layer, spec: ModelSpec, crop: Crop) -> Halo:
    """Zeros that a convolution needs around its input."""
    node, params = layer.node, spec.param_shapes(layer.node)
    if node.op == "conv2d":
        maps = node.declaration.rows(params, node.attrs)
        assert maps is not None
        return halo_of(layer, maps, crop)[2]
    halo = NO_HALO
    for window in windows_of(node, params, crop.whole, layer.name):
        halo = wider(halo, window.halo)
    return halo
