"""A glance at the memory of Python's dicts and torch's tensors: words that change when they do.

A module has hundreds of dicts and tensors. To ask each of them takes tenths of a millisecond at every call,
more where a large network has just driven them out of the caches. CPython numbers the changes of every dict
(PEP 509, until 3.12); a tensor's memory says which storage it has, where that is, and how often it was
written to. A kernel compares these words as they lie.

Nothing promises where they lie. So each place is looked for in objects made for that, and what is there has
to be what Python and torch say, of these and of every tensor looked at. Where it is not, there is no glance,
and all are asked.
"""

import ctypes
import functools
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bslite.engines.cpu.asked import asked

WHOLE, HALF = -1, (1 << 32) - 1
WORDS = 20  # of a tensor's memory that are looked through
STORES = 200  # of an attribute, in the form that Python gives an instruction that runs often


class Places(NamedTuple):
    """Offsets in bytes: in a tensor's Python object of its memory in C++, in that of its storage, its place
    there and its counter, in a storage of the address, in a counter of the number.
    """

    tensor: int
    storage: int
    start: int
    counter: int
    memory: int
    version: int


class Glance:
    """Whether dicts and tensors are what they were when this was made. The owner keeps them alive."""

    def __init__(self, dicts: Iterable[dict[str, Any]], tensors: Iterable[Any]) -> None:
        """``tensors`` are torch's. Raises LookupError if their memory does not say."""
        from bslite.kernels.cpu.runtime.glance import glance

        tag, places = tag_of_dicts(), places_of_tensors()
        if tag is None or places is None:
            raise LookupError("the memory of dicts or tensors is of another form")
        # Flat lists: thousands of tuples would have Python collect garbage, which takes long.
        dicts = list(dicts)
        if not all(isinstance(d, dict) for d in dicts):
            raise LookupError("what holds attributes is no dict")
        held = [n for d in dicts for n in (id(d) + tag, WHOLE, _word(id(d) + tag))]
        inside: list[int] = []  # words that may be read if those of `held` are the same
        behind: list[int] = []  # and these if those are
        try:
            for t in tensors:
                held += id(t) + places.tensor, WHOLE, t._cdata
                _see(t, places, inside, behind)
        except (NotImplementedError, RuntimeError, ValueError) as e:  # it has no storage
            raise LookupError("a tensor is of another form") from e
        self._ask = asked(glance, np.concatenate([_in_order(words) for words in (held, inside, behind)]))
        if not self.same():
            raise LookupError("the memory of a tensor is of another form")

    def same(self) -> bool:
        """Whether all are what they were."""
        return self._ask() != 0


def _word(address: int) -> int:
    return ctypes.c_int64.from_address(address).value


def _in_order(words: list[int]) -> npt.NDArray[np.int64]:
    """Address, mask and value of each word as rows, neighbours in memory one after the other."""
    rows = np.array(words, np.int64).reshape(-1, 3)
    return rows[np.argsort(rows[:, 0])]


def _see(tensor: Any, places: Places, inside: list[int], behind: list[int]) -> None:
    """Append what is to be seen of a tensor: words of its own, and of what these say is its own."""
    storage, own = tensor.untyped_storage(), tensor._cdata
    inside += (
        own + places.storage,
        WHOLE,
        storage._cdata,
        own + places.start,
        WHOLE,
        int(tensor.storage_offset()),
    )
    behind += storage._cdata + places.memory, WHOLE, storage.data_ptr()
    if not tensor.is_inference():
        counter = _word(own + places.counter)
        inside += own + places.counter, WHOLE, counter
        behind += counter + places.version, HALF, tensor._version


@functools.cache
def tag_of_dicts() -> int | None:
    """The offset of the word of a dict that every change of it changes; None if there is none.

    PEP 509 says that no two changes give dicts the same. It stands behind the number of entries.
    """

    class Held:
        def __init__(self) -> None:
            self.x = 0

    offset, held = 3 * ctypes.sizeof(ctypes.c_void_p), Held()
    if ctypes.sizeof(ctypes.c_void_p) != 8 or dict.__basicsize__ < offset + 8:
        return None
    own = held.__dict__
    plain: dict[str, Any] = {"a": 1, "b": 2}

    def store() -> None:
        held.x = -len(seen)

    changes = [
        lambda: plain.__setitem__("a", 3), lambda: plain.__setitem__("c", 4), lambda: plain.pop("c"),
        lambda: plain.update(b=5), lambda: setattr(held, "y", 6), lambda: delattr(held, "y"),
        lambda: own.update(x=7), *[store] * STORES,
    ]  # fmt: skip
    seen: set[tuple[int, int]] = set()
    for n, change in enumerate(changes):
        change()
        seen.add((_word(id(plain) + offset), _word(id(own) + offset)))
        if len(seen) != n + 1:
            return None
    before = len(seen)
    for name in ("a", "x", "none"):  # a look changes nothing
        plain.get(name), own.get(name), getattr(held, name, None), held.__dict__
    seen.add((_word(id(plain) + offset), _word(id(own) + offset)))
    return offset if len(seen) == before else None


@functools.cache
def places_of_tensors() -> Places | None:
    """Where the words lie; None if one is not found, or not once only."""
    try:
        return _found()
    except (AttributeError, LookupError, RuntimeError):
        return None


def _found() -> Places:
    import torch

    with torch.inference_mode(False):
        # Of memory of the allocator's a storage says twice where it is: once for whom to give it back to.
        base, other = torch.from_numpy(np.zeros(64, np.float32)), torch.zeros(64)
        apart = base[37:41]
    tensor = _only(o for o in _offsets(6) if _word(id(base) + o) == base._cdata)
    own, storage = base._cdata, base.untyped_storage()
    inside = _only(o for o in _offsets(12) if _word(own + o) == storage._cdata)
    memory = _only(o for o in _offsets(6) if _word(storage._cdata + o) == storage.data_ptr())
    start = _only(o for o in _offsets(WORDS) if (_word(own + o), _word(apart._cdata + o)) == (0, 37))
    # Views share the counter, and besides only the storage and the class.
    counter = _only(
        o
        for o in _offsets(12)
        if o != inside and _word(own + o) == _word(apart._cdata + o) != _word(other._cdata + o)
    )
    found: set[int] = set(range(0, 24, 4))
    for _ in range(40):
        base.add_(1)
        numbers = {o: ctypes.c_int32.from_address(_word(own + counter) + o).value for o in found}
        found = {o for o, n in numbers.items() if n == base._version}
    return Places(tensor, inside, start, counter, memory, _only(found))


def _offsets(words: int) -> range:
    return range(0, 8 * words, 8)


def _only(found: Iterable[int]) -> int:
    one, *more = [*found] or [-1]
    if one < 0 or more:
        raise LookupError("a word is not found, or twice")
    return one
