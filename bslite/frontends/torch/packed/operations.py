"""The torch operations of the stand-ins, each with an implementation and a rule for traced tensors."""

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from bslite.frontends.common.lazy import load_torch

if TYPE_CHECKING:
    from torch import Tensor


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
        library.impl(name, _followed(name, run), "AutogradCPU")
        torch.library.register_fake(f"bslite::{name}", fake, lib=library)
    operations_kept.append(library)  # it undefines them when it goes
    return torch.ops.bslite


operations_kept: list[Any] = []


def _followed(name: str, run: Callable[..., Any]) -> Callable[..., Any]:
    """``run``, whose operations autograd follows, where tensors have numbers; the rule for traced ones."""
    torch = load_torch()

    def both(*given: Any) -> Any:
        leaves = torch.utils._pytree.tree_leaves(given)
        plain = (torch.Tensor, torch.nn.Parameter)
        if all(type(x) in plain for x in leaves if isinstance(x, torch.Tensor)):
            return run(*given)
        with torch._C._AutoDispatchBelowAutograd():
            return getattr(torch.ops.bslite, name)(*given)

    return both


def _lengths(lengths: "Tensor", x: "Tensor", sorted: bool, longest: int | None, whole: bool) -> "Tensor":
    """A copy of the lengths, checked as torch checks them."""
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


def _fake_lengths(lengths: "Tensor", x: "Tensor", sorted: bool, longest: int | None, whole: bool) -> "Tensor":
    torch = load_torch()
    if lengths.ndim != 1 or lengths.dtype != torch.int64:
        raise ValueError(
            f"the lengths of packed sequences are {lengths.dtype} {list(lengths.shape)}, expected int64 [N]"
        )
    torch._check(lengths.shape[0] == x.shape[1], lambda: _wrong_count(lengths, x))
    return torch.empty_like(lengths)


def _wrong_count(lengths: "Tensor", x: "Tensor") -> str:
    return (
        f"Expected `len(lengths)` to be equal to batch_size, but got {lengths.shape[0]} "
        f"(batch_size={x.shape[1]})"
    )


def _recurrent(
    kind: str, x: "Tensor", lengths: "Tensor", state: "list[Tensor]", params: "list[Tensor]", biased: bool,
    layers: int, bidirectional: bool,
) -> "list[Tensor]":  # fmt: skip
    """torch's own recurrent module on the sequences, packed."""
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
    kind: str, x: "Tensor", lengths: "Tensor", state: "list[Tensor]", params: "list[Tensor]", biased: bool,
    layers: int, bidirectional: bool,
) -> "list[Tensor]":  # fmt: skip
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
