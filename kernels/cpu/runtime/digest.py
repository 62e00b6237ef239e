"""A digest of a few words of each of many tensors, cheap enough for every call.

It reads 8-byte words, so the dtype does not matter: all words of a tensor of up to `WHOLE`, else `SAMPLES`
words, evenly spread, including the last one.
"""

from numba.extending import register_jitable

from bslite.kernels.cpu.runtime.compile import Kernel
from bslite.kernels.cpu.vector.memory import load_int, store_int

WHOLE = 64
SAMPLES = 8


@register_jitable
def _mixed(word):
    """Another number for every word. Each bit changes many: signs that change together would cancel."""
    word = (word ^ ((word >> 29) & 0x7FFFFFFFF)) * -7046029254386353131
    return word ^ ((word >> 29) & 0x7FFFFFFFF)


def _digest(table, tensors, result):
    """Digests ``table``, pairs of int64 (address, length in 8-byte words), into ``result``.

    A tensor's words are mixed and count each times an odd number, so that none changes alone unseen, and no
    product waits for that of the word before. The digests of tensors are mixed as in FNV-1a.
    """
    state = 1469598103934665603
    for t in range(tensors):
        address = load_int(table + 16 * t)
        words = load_int(table + 16 * t + 8)
        own = 0
        if words <= WHOLE:
            for i in range(words):
                own += _mixed(load_int(address + 8 * i)) * (2 * i + 1)
        else:
            apart = 8 * ((words - 1) // (SAMPLES - 1))
            last = address + 8 * (words - 1)
            for i in range(SAMPLES):
                own += _mixed(load_int(last - i * apart)) * (2 * i + 1)
        state = (state ^ own) * 1099511628211
        state = state ^ (state >> 29)
    store_int(result, state)


digest = Kernel(_digest, "digest", 3)
