"""The number of threads that this process runs by default, and what decided it."""

import functools
import os
import sys
import time
from typing import Any

from bslite.engines.cpu.limits import Limit, chosen, cores, others, quotas

ASKING = 0.1  # seconds between two questions to the system, ...
READING = 10.0  # ... and between two looks at files, which take longer than a small model


def limits() -> list[Limit]:
    """All that bounds the threads, what decides first: BSLITE_NUM_THREADS if it is set, else the least of
    what the system, Numba and torch, or OMP_NUM_THREADS, have.

    Raises EngineError if BSLITE_NUM_THREADS is no number of threads.
    """
    theirs = None if chosen(os.environ) else others(os.environ)
    found = [*_firm(), *([] if theirs is None else [theirs])]
    return sorted(found, key=lambda limit: limit.threads)


def decided(threads: int | None = None) -> str:
    """The number of threads, and what decided it, in words; ``threads``: those asked for."""
    if threads is not None:
        return f"{threads}, as asked for"
    least, *others = limits()
    more = "".join(f"; {limit.what}: {limit.threads}" for limit in others)
    return f"{least.threads} by {least.what}{more}"


def _firm() -> list[Limit]:
    """The limits without torch's, which changes from call to call."""
    own = chosen(os.environ)
    return [*(_usable() if own is None else [own]), Limit("NUMBA_NUM_THREADS", numba_threads())]


def _usable() -> list[Limit]:
    return [*cores(), *_quotas(int(time.monotonic() / READING))]


@functools.lru_cache(maxsize=1)
def _quotas(_: int) -> list[Limit]:
    return list(quotas())


def available_cores() -> int:
    """The cores this process may use: those of its affinity mask, limited by the quotas of its groups."""
    return min(limit.threads for limit in _usable())


def numba_threads() -> int:
    """The number of threads Numba starts with: ``NUMBA_NUM_THREADS``, else the size of the affinity mask."""
    return int(_numba_config()["NUMBA_NUM_THREADS"])


@functools.cache
def _numba_config() -> dict[str, Any]:
    """Numba's settings: the live dictionary, so that a lookup sees later changes."""
    from numba.core import config

    return vars(config)


def usable_cores() -> int:
    """`available_cores`, asked every `ASKING` seconds: for each run of several threads."""
    global _then, _cores
    if (now := time.monotonic()) > _then:
        _cores, _then = available_cores(), now + ASKING
    return _cores


_then, _cores = 0.0, 1


def default_threads() -> int:
    """The threads that `limits` decide on. Raises EngineError as it does."""
    global _until, _lately, _alone
    torch = sys.modules.get("torch")
    if (now := time.monotonic()) > _until:
        _alone = chosen(os.environ) is not None
        firm = limits() if torch is None else _firm()
        _lately, _until = min(limit.threads for limit in firm), now + ASKING
    if _alone or torch is None or not hasattr(torch, "get_num_threads"):
        return _lately
    return max(1, min(_lately, int(torch.get_num_threads())))


_until, _lately, _alone = 0.0, 1, False  # when to ask again; what was said; whether it is bslite's variable
