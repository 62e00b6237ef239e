"""The Machine this process runs on."""

from __future__ import annotations

import functools
import os
import platform
import sys
from pathlib import Path
from typing import Any

from bslite.machine import Machine

#: A virtual machine is told the size of the whole socket's cache, and shares it with strangers: of 480 MB
#: that one of two cores reported, 64 could be read at the speed of L3.
L3_PER_CORE = 32 << 20


def available_cores() -> int:
    """Cores this process may use: its affinity mask, cut down to its cgroup's CPU quota."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, _cgroup_quota() or cores))


@functools.cache
def _cgroup_quota() -> int | None:
    """CPU quota in whole cores (cgroup v2, then v1), or None where there is none."""
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
    """How many threads Numba started with, or will: ``NUMBA_NUM_THREADS``, else the affinity mask."""
    return int(_numba_config()["NUMBA_NUM_THREADS"])


@functools.cache
def _numba_config() -> dict[str, Any]:
    """Numba's settings, as they are when they are looked up."""
    from numba.core import config

    return vars(config)


def default_threads() -> int:
    """min(available cores, Numba's cap, torch's setting where torch is imported)."""
    threads = min(available_cores(), numba_threads())
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "get_num_threads"):
        threads = min(threads, torch.get_num_threads())
    return max(1, int(threads))


def _cache_bytes(level: int, default: int) -> int:
    """Data cache size of the first core from sysfs, or the default."""
    for index in range(6):
        base = Path(f"/sys/devices/system/cpu/cpu0/cache/index{index}")
        try:
            if (
                int((base / "level").read_text()) != level
                or (base / "type").read_text().strip() == "Instruction"
            ):
                continue
            text = (base / "size").read_text().strip()
            return int(text[:-1]) << {"K": 10, "M": 20}[text[-1]]
        except (OSError, ValueError, KeyError):
            continue
    return default


def cpu_model() -> str:
    """The processor's name: what it calls itself, and LLVM's name for what it can do."""
    from bslite.kernels.cpu.vector.target import simd

    try:
        with open("/proc/cpuinfo") as lines:
            named = next(
                (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), ""
            )
    except OSError:
        named = platform.processor()
    return f"{named} {simd().cpu}".strip()


def described(threads: int) -> Machine:
    """The machine as the system and LLVM describe it, nothing measured."""
    from bslite.kernels.cpu.vector.target import simd

    model = simd()
    return Machine(
        threads=threads,
        lanes=model.lanes,
        registers=model.registers,
        l1=_cache_bytes(1, 32 << 10),
        l2=_cache_bytes(2, 1 << 20),
        l3=min(_cache_bytes(3, 16 << 20), L3_PER_CORE * available_cores()),
    )


@functools.cache
def detect(threads: int) -> Machine:
    """The machine model for ``threads`` threads of this process: described, and as measured by
    ``bslite calibrate`` if that has been run. It measures nothing itself.
    """
    from bslite.engines.cpu.calibrate import calibrated, load

    return calibrated(described(threads), load())
