"""The context in which torch's packing of sequences runs on stand-ins."""

import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache, partialmethod
from typing import TYPE_CHECKING, Any

from bslite.errors import UnsupportedError
from bslite.frontends.common.lazy import load_torch
from bslite.frontends.torch.packed.operations import operations

if TYPE_CHECKING:
    import torch
    from torch import Tensor

ANY = -1  # a batch that torch's modules take for a Python number, which would fix it


@dataclass
class Packed:
    """What a stand-in for ``batch_sizes`` stands for."""

    lengths: "Tensor"  # [N], checked
    steps: Any  # T, of the padded batch
    batch: Any  # N
    zeroed: set[int]  # ids of packed data that is zero behind the lengths


def packing(module: "torch.nn.Module") -> Any:
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
        """Calls torch's functions, and ``on_NAME`` in the place of those that get a stand-in."""

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

        def _recurrent(self, kind: str, *given: Any, **__: Any) -> Any:
            packed = self.packed.get(id(given[1])) if len(given) == 9 else None
            if packed is None:
                return NotImplemented
            data, _, *args = given
            state, params, biased, layers, dropout, train, bidirectional = args
            if train and dropout and layers > 1:
                raise UnsupportedError("dropout between layers over packed sequences, in training")
            x = operations().unpacked(data).reshape(packed.steps, packed.batch, data.shape[1])
            states = list(state) if isinstance(state, (list, tuple)) else [state]
            y, *last = operations().recurrent(
                kind, x, packed.lengths, states, list(params), biased, layers, bidirectional
            )
            made = operations().packed(y.reshape(packed.steps * packed.batch, y.shape[2]))
            packed.zeroed.add(id(made))
            self.kept.append(made)
            return (made, *last)

        on_lstm = partialmethod(_recurrent, "lstm")
        on_gru = partialmethod(_recurrent, "gru")
        on_rnn_tanh = partialmethod(_recurrent, "rnn_tanh")
        on_rnn_relu = partialmethod(_recurrent, "rnn_relu")

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


def _tied(y: "Tensor", lengths: "Tensor") -> "Tensor":
    """``y``, made to depend on the lengths, so that their check stays part of the graph."""
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
