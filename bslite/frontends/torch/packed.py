"""Packed sequences: ``pack_padded_sequence``, ``pad_packed_sequence`` around recurrent modules, for export.

torch.export cannot follow them: how long the packed data is depends on the lengths' values. `Packing`, active
in the exporting thread alone, lets them run on stand-ins. Data stays padded, ``[T*N, ...]`` with time first;
the place of ``batch_sizes`` takes a tensor that stands for it, by which the recurrent call finds the lengths,
and they stay an input. Sequences are never sorted: the permutations of ``enforce_sorted=False`` stand for
themselves and drop out. What else a forward does with a packed sequence is looked at by `misuse`.

The stand-ins are operations of torch with an implementation, so a part of a graph that stays in torch runs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from bslite.frontends.common.lazy import load_torch

if TYPE_CHECKING:
    import torch

    Tensor = torch.Tensor

ANY = -1  # a batch that torch's modules take for a Python number, which would fix it


@dataclass
class Packed:
    """What a stand-in for ``batch_sizes`` stands for."""

    lengths: Tensor  # [N], checked
    steps: Any  # T, of the padded batch
    batch: Any  # N
    zeroed: set[int]  # ids of packed data that is zero behind the lengths


@cache
def operations() -> Any:
    """``torch.ops.bslite``: defined on first use."""
    torch = load_torch()
    library = torch.library.Library("bslite", "DEF")
    given: dict[str, tuple[str, Callable[..., Any], Callable[..., Any]]] = {
        "lengths(Tensor lengths, Tensor x, bool sorted, int? longest, bool whole) -> Tensor": (
            "lengths", _lengths, _fake_lengths,
        ),
        "whole(Tensor x, Tensor lengths) -> Tensor": (
            "whole", lambda x, lengths: x.clone(), lambda x, lengths: torch.empty_like(x),
        ),
        "packed(Tensor x) -> Tensor": ("packed", torch.clone, torch.empty_like),
        "unpacked(Tensor x) -> Tensor": ("unpacked", torch.clone, torch.empty_like),
        "batch_sizes(Tensor lengths) -> Tensor": ("batch_sizes", torch.clone, torch.empty_like),
        "permutation(Tensor lengths) -> Tensor": ("permutation", torch.clone, torch.empty_like),
        "recurrent(str kind, Tensor x, Tensor lengths, Tensor[] state, Tensor[] params, bool biased, "
        "int layers, bool bidirectional) -> Tensor[]": ("recurrent", _recurrent, _fake_recurrent),
    }  # fmt: skip
    for schema, (name, run, fake) in given.items():
        library.define(schema)
        library.impl(name, run, "CPU")
        torch.library.register_fake(f"bslite::{name}", fake, lib=library)
    operations_kept.append(library)  # it undefines them when it goes
    return torch.ops.bslite


operations_kept: list[Any] = []


def packing(module: torch.nn.Module) -> Any:
    """A context in which this thread's packing of sequences in ``module`` can be exported."""
    if not any(isinstance(m, load_torch().nn.RNNBase) for m in module.modules()):
        return nullcontext()
    operations()
    return _mode()()


@cache
def _mode() -> Any:
    torch = load_torch()
    from torch.overrides import TorchFunctionMode

    class Packing(TorchFunctionMode):
        """Functions of torch by name, those on stand-ins replaced."""

        def __init__(self) -> None:
            super().__init__()
            self.packed: dict[int, Packed] = {}  # by the id of what stands for batch_sizes
            self.permutations: set[int] = set()
            self.kept: list[Any] = []  # so that no other tensor gets their id

        def __torch_function__(
            self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
        ) -> Any:
            kwargs, name = kwargs or {}, getattr(func, "__name__", "").strip("_")
            replaced = getattr(self, f"on_{name}", None)
            if replaced is not None and (self.kept or name in ("sort", "pack_padded_sequence")):
                made = replaced(*args, **kwargs)
                if made is not NotImplemented:
                    return made
            return func(*args, **kwargs)

        def _stands(self, x: Any) -> bool:
            return id(x) in self.permutations

        def on_sort(self, *args: Any, **_: Any) -> Any:
            if _caller("pack_padded_sequence") is None:
                return NotImplemented
            order = operations().permutation(args[0])
            self.permutations.add(id(order))
            self.kept.append(order)
            return args[0], order

        def on_to(self, x: Any = None, *_: Any, **__: Any) -> Any:
            return x if self._stands(x) else NotImplemented

        on_cpu = on_empty_like = on_scatter = on_to  # of a permutation: it is its own inverse

        def on_index_select(self, x: Any = None, dim: Any = None, index: Any = None, **__: Any) -> Any:
            return x if self._stands(index) else NotImplemented

        def on_getitem(self, x: Any, index: Any) -> Any:
            if self._stands(index):
                return x
            found = self.packed.get(id(x))
            if found is None or index != 0:
                return NotImplemented
            return found.batch if _caller("get_expected_hidden_size") is None else ANY

        def on_size(self, x: Any = None, dim: Any = None) -> Any:
            checking = _caller("check_hidden_size")
            if checking is not None and checking["hx"] is x and checking["expected_hidden_size"][1] == ANY:
                return _of_any_batch(tuple(x.shape), tuple(checking["expected_hidden_size"]))
            frame, found = _caller("pad_packed_sequence"), self.packed.get(id(x))
            if found is None or frame is None:
                return NotImplemented
            return found.steps if frame["total_length"] is None else 0  # that it is enough is checked later

        def on_pack_padded_sequence(self, x: Any, lengths: Any, batch_first: bool) -> Any:
            frame = _caller("pack_padded_sequence")
            if frame is None:
                return NotImplemented
            if batch_first:
                x = x.transpose(0, 1)
            steps, batch, *rest = x.shape
            checked = operations().lengths(lengths, x, bool(frame["enforce_sorted"]), None, False)
            data = operations().packed(x.reshape(steps * batch, *rest))
            return data, self._sizes(Packed(checked, steps, batch, set()))

        def _sizes(self, packed: Packed) -> Any:
            sizes = operations().batch_sizes(packed.lengths)
            self.packed[id(sizes)] = packed
            self.kept.append(sizes)
            return sizes

        def on_lstm(self, *args: Any, **_: Any) -> Any:
            return self._recurrent("lstm", args)

        def on_gru(self, *args: Any, **_: Any) -> Any:
            return self._recurrent("gru", args)

        def on_rnn_tanh(self, *args: Any, **_: Any) -> Any:
            return self._recurrent("rnn_tanh", args)

        def on_rnn_relu(self, *args: Any, **_: Any) -> Any:
            return self._recurrent("rnn_relu", args)

        def _recurrent(self, kind: str, given: Sequence[Any]) -> Any:
            packed = self.packed.get(id(given[1])) if len(given) == 9 else None
            if packed is None:
                return NotImplemented
            data, _, *args = given
            state, params, biased, layers, *_, bidirectional = args
            x = operations().unpacked(data).reshape(packed.steps, packed.batch, data.shape[1])
            states = list(state) if isinstance(state, (list, tuple)) else [state]
            y, *last = operations().recurrent(
                kind, x, packed.lengths, states, list(params), biased, layers, bidirectional
            )
            made = operations().packed(y.reshape(packed.steps * packed.batch, y.shape[2]))
            packed.zeroed.add(id(made))
            self.kept.append(made)
            return (made, *last)

        def on_pad_packed_sequence(
            self, data: Any, sizes: Any, batch_first: bool, value: float, length: Any
        ) -> Any:
            frame, packed = _caller("pad_packed_sequence"), self.packed.get(id(sizes))
            if frame is None or packed is None:
                return NotImplemented
            steps, lengths = packed.steps, packed.lengths
            y = operations().unpacked(data).reshape(steps, packed.batch, *data.shape[1:])
            if value != 0 or id(data) not in packed.zeroed:
                live = torch.arange(steps)[:, None] < lengths[None]
                y = torch.where(live.reshape(*live.shape, *[1] * (y.ndim - 2)), y, value)
            if frame["total_length"] is None:
                y = operations().whole(y, lengths)
            elif length > steps:
                y = torch.nn.functional.pad(y, [0, 0] * (y.ndim - 1) + [0, length - steps], value=value)
            elif length < steps:
                lengths = operations().lengths(lengths, y, False, int(length), False)
                y = _tied(y[:length], lengths)
            return (y.transpose(0, 1) if batch_first else y), lengths

    return Packing


def _tied(y: Tensor, lengths: Tensor) -> Tensor:
    """``y``, by way of the lengths: what checks them stays part of the graph."""
    torch = load_torch()
    live = torch.arange(y.shape[0])[:, None] < lengths[None]
    return torch.where(live.reshape(*live.shape, *[1] * (y.ndim - 2)), y, y)


def _of_any_batch(size: tuple[Any, ...], expected: tuple[int, ...]) -> tuple[Any, ...]:
    """``size`` of a state, with `ANY` for its batch, which is compared where the lengths are."""
    return (size[0], ANY, *size[2:]) if len(size) == len(expected) else size


def _caller(function: str) -> dict[str, Any] | None:
    """The local variables of torch's ``function``, if it is the one that called into this mode."""
    from torch.nn.utils import rnn

    code = getattr(rnn, function, None) or getattr(load_torch().nn.RNNBase, function)
    code, frame = code.__code__, sys._getframe(2)
    for _ in range(12):
        if frame is None or frame.f_code is code:
            break
        frame = frame.f_back  # type: ignore[assignment]
    return dict(frame.f_locals) if frame is not None and frame.f_code is code else None


def _lengths(lengths: Tensor, x: Tensor, sorted: bool, longest: int | None, whole: bool) -> Tensor:
    """As torch checks them."""
    from torch.nn.utils.rnn import pack_padded_sequence

    pack_padded_sequence(x, lengths, enforce_sorted=sorted)
    if longest is not None and int(lengths.max()) > longest:
        raise ValueError(
            "Expected total_length to be at least the length of the longest sequence in input, but got "
            f"total_length={longest} and max sequence length being {int(lengths.max())}"
        )
    if whole and int(lengths.max()) < x.shape[0]:
        raise ValueError(
            f"the longest sequence has {int(lengths.max())} of {x.shape[0]} steps: how many steps "
            "pad_packed_sequence returns depends on the lengths"
        )
    return lengths.clone()


def _fake_lengths(lengths: Tensor, x: Tensor, sorted: bool, longest: int | None, whole: bool) -> Tensor:
    torch = load_torch()
    if lengths.ndim != 1 or lengths.dtype != torch.int64:
        raise ValueError(
            f"the lengths of packed sequences are {lengths.dtype} {list(lengths.shape)}, expected int64 [N]"
        )
    torch._check(lengths.shape[0] == x.shape[1], lambda: _wrong_count(lengths, x))
    return torch.empty_like(lengths)


def _wrong_count(lengths: Tensor, x: Tensor) -> str:
    return (
        f"Expected `len(lengths)` to be equal to batch_size, but got {lengths.shape[0]} "
        f"(batch_size={x.shape[1]})"
    )


def _recurrent(
    kind: str, x: Tensor, lengths: Tensor, state: list[Tensor], params: list[Tensor], biased: bool,
    layers: int, bidirectional: bool,
) -> list[Tensor]:  # fmt: skip
    """By torch, packed after all."""
    torch = load_torch()
    from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

    packed = pack_padded_sequence(x, lengths, enforce_sorted=False)
    order, back = packed.sorted_indices, packed.unsorted_indices
    assert order is not None
    assert back is not None
    ordered = [s.index_select(1, order) for s in state]
    given = tuple(ordered) if kind == "lstm" else ordered[0]
    data, *last = getattr(torch._VF, kind)(
        packed.data, packed.batch_sizes, given, params, biased, layers, 0.0, False, bidirectional
    )
    y, _ = pad_packed_sequence(PackedSequence(data, *packed[1:]), total_length=x.shape[0])
    return [y.clone(), *(s.index_select(1, back) for s in last)]


def _fake_recurrent(
    kind: str, x: Tensor, lengths: Tensor, state: list[Tensor], params: list[Tensor], biased: bool,
    layers: int, bidirectional: bool,
) -> list[Tensor]:  # fmt: skip
    torch = load_torch()
    rows, directions = layers * (1 + bidirectional), 1 + bidirectional
    for s in state:
        if s.ndim != 3 or s.shape[0] != rows:
            raise RuntimeError(
                f"Expected hidden size ({rows}, {x.shape[1]}, {s.shape[-1]}), got {list(s.shape)}"
            )
        torch._check(s.shape[1] == x.shape[1])
    features = params[1].shape[1]
    y = x.new_empty(x.shape[0], x.shape[1], features * directions)
    return [y, *(s.new_empty(*s.shape) for s in state)]


#: Operations that treat each row of packed data for itself.
BY_ROW = (
    "linear", "relu", "tanh", "sigmoid", "gelu", "silu", "elu", "leaky_relu", "hardtanh", "dropout", "add",
    "sub", "mul", "div", "neg", "exp", "embedding", "to", "_to_copy", "clone", "contiguous", "detach",
    "alias", "layer_norm",
)  # fmt: skip


def settle(nodes: Sequence[Any], live: set[Any]) -> None:
    """Note at the lengths where the padded output is one of all steps: the longest must then be so long."""
    from bslite.frontends.torch.builders import operation

    for node in nodes:
        if node in live and operation(node) == "bslite.whole":
            lengths = node.args[1]
            lengths.args = (*lengths.args[:4], True)


def misuse(nodes: Sequence[Any], live: set[Any]) -> str:
    """What a graph does with a packed sequence beyond the rows of its data; empty if nothing."""
    from bslite.frontends.torch.builders import operation

    def of(node: Any) -> str:
        return operation(node) if node.op == "call_function" else node.op

    nodes = [n for n in nodes if n in live]
    rows, parts = {n for n in nodes if of(n) == "bslite.packed"}, ""
    for node in nodes:
        name = of(node)
        if name in ("bslite.batch_sizes", "bslite.permutation"):
            what = "batch_sizes" if name.endswith("sizes") else "sorted_indices"
            parts = f"it uses the {what} of a PackedSequence otherwise than torch's own functions do"
        if not any(n in rows for n in node.all_input_nodes) or name in ("bslite.unpacked", "bslite.packed"):
            continue
        if name == "output":
            return "it returns a PackedSequence, or its data"
        if name not in BY_ROW:
            return f"it uses the data of a PackedSequence in {node.target}"
        rows.add(node)
    return parts
