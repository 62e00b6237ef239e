"""What bounds the threads of a process: its affinity, its cores, its groups' quotas, its environment."""

import functools
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from bslite.errors import EngineError

OWN = "BSLITE_NUM_THREADS"
OPENMP = "OMP_NUM_THREADS"
ROOT = Path("/")


class Limit(NamedTuple):
    """At most ``threads`` threads, because of ``what``."""

    what: str
    threads: int


def cores(root: Path = ROOT) -> list[Limit]:
    """The CPUs that the process may run on, and their cores if these are fewer: hyperthreads share the
    multiply-add units of a core. Without any information of the system a CPU is a core.
    """
    mine = _mask()
    found = [Limit("CPUs that it may run on", len(mine))]
    apart = cpus(root)
    if len(apart) < len(mine):
        found.append(Limit("cores, whose hyperthreads are the other CPUs", len(apart)))
    return found


def cpus(root: Path = ROOT) -> list[int]:
    """The first CPU of each core that the process may run on."""
    return list({_siblings(root, cpu): cpu for cpu in sorted(_mask(), reverse=True)}.values())[::-1]


def _mask() -> set[int]:
    """The CPUs that the process may run on: those of its main thread, others may be bound to some of them."""
    known = hasattr(os, "sched_getaffinity")
    return os.sched_getaffinity(os.getpid()) if known else set(range(os.cpu_count() or 1))


@functools.cache
def _siblings(root: Path, cpu: int) -> str:
    """The CPUs of a core, as the system writes them."""
    topology = root / f"sys/devices/system/cpu/cpu{cpu}/topology"
    for name in ("core_cpus_list", "thread_siblings_list"):
        try:
            return (topology / name).read_text().strip()
        except OSError:
            continue
    return str(cpu)


def quotas(root: Path = ROOT) -> Iterator[Limit]:
    """The CPU quotas of the groups (cgroups, version 1 or 2) around the process, in whole cores, at least 1.

    All of the groups around one bound it. In a container the path of a group may be the host's: then only the
    last of them, its own root, is there.
    """
    groups = root / "sys/fs/cgroup"
    for controllers, path in _groups(root):
        if not controllers:
            mounts, files = [groups], ["cpu.max"]
        elif "cpu" in controllers.split(","):
            mounts = [groups / controllers, groups / "cpu"]
            files = ["cpu.cfs_quota_us", "cpu.cfs_period_us"]
        else:
            continue
        mount = next((m for m in mounts if m.is_dir()), mounts[0])
        for group in (path, *path.parents):
            whole = _quota([mount / group / file for file in files])
            if whole is not None:
                yield Limit(f"CPU quota of the group /{'' if group == Path() else group}", whole)


def _groups(root: Path) -> Iterator[tuple[str, Path]]:
    """The controllers of each hierarchy of groups, none of version 2, and the process's path in it."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        yield controllers, Path(*(part for part in path.split("/") if part not in ("", "..")))


def _quota(files: Sequence[Path]) -> int | None:
    try:
        quota, period = " ".join(file.read_text() for file in files).split()
        return None if quota == "max" or int(quota) <= 0 else max(1, int(quota) // int(period))
    except (OSError, ValueError, ZeroDivisionError):
        return None


def chosen(environment: Mapping[str, str]) -> Limit | None:
    """What BSLITE_NUM_THREADS says.

    Raises EngineError if that is no positive whole number.
    """
    text = environment.get(OWN, "").strip()
    if not text:
        return None
    if not re.fullmatch(r"[0-9]+", text) or int(text) < 1:
        raise EngineError(f"{OWN} is {text!r}; a number of threads is a whole number from 1 on")
    return Limit(OWN, int(text))


def others(environment: Mapping[str, str]) -> Limit | None:
    """The setting of torch where that is imported, which starts from OMP_NUM_THREADS, else that variable's:
    the first of its numbers, if it is one.
    """
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "get_num_threads"):
        return Limit("torch.get_num_threads()", max(1, int(torch.get_num_threads())))
    first = environment.get(OPENMP, "").split(",")[0].strip()
    return Limit(OPENMP, int(first)) if re.fullmatch(r"0*[1-9][0-9]*", first) else None
