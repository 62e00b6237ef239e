"""The number of threads that this process may run."""

import functools
import os
import sys
import time
from pathlib import Path
from typing import Any


def available_cores() -> int:
    """The cores this process may use: its affinity mask, limited by its cgroup's CPU quota."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, _cgroup_quota() or cores))


@functools.cache
def _cgroup_quota() -> int | None:
    """The CPU quota in whole cores (cgroup v2, then v1), or None where there is none."""
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return None if quota == "max" else max(1, int(quota) // int(period))
    except (OSError, ValueError):
        pass
    try:
        quota_us = int(Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us").read_text())
        period_us = int(Path("/sys/fs/cgroup/cpu/cpu.cfs_period_us").read_text())
        return None if quota_us <= 0 else max(1, quota_us // period_us)
    except (OSError, ValueError):
        return None


def numba_threads() -> int:
    """The number of threads Numba starts with: ``NUMBA_NUM_THREADS``, else the size of the affinity mask."""
    return int(_numba_config()["NUMBA_NUM_THREADS"])


@functools.cache
def _numba_config() -> dict[str, Any]:
    """Numba's settings: the live dictionary, so that a lookup sees later changes."""
    from numba.core import config

    return vars(config)


def default_threads() -> int:
    """The least of the available cores, Numba's limit, and torch's setting where torch is imported.

    The system is asked ten times a second at most: that takes as long as a small model.
    """
    global _until, _lately
    if (now := time.monotonic()) > _until:
        _lately, _until = min(available_cores(), numba_threads()), now + 0.1
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "get_num_threads"):
        return _lately
    return max(1, min(_lately, int(torch.get_num_threads())))


_until, _lately = 0.0, 1  # when to ask the system again; what it said
