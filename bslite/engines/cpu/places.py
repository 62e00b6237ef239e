"""Which cores runs side by side are bound to: those of one NUMA node, where a node has enough."""

import os
import threading
from pathlib import Path

from bslite.engines.cpu.limits import ROOT, cpus
from bslite.errors import EngineError


def places(streams: int, threads: int, root: Path = ROOT) -> list[frozenset[int]]:
    """The CPUs of each of ``streams`` runs of ``threads`` threads: one CPU of a core, no core twice.

    Raises EngineError if the process has too few cores for all, or where threads cannot be bound.
    """
    if not hasattr(os, "sched_setaffinity"):
        raise EngineError("pin=True: this system binds no thread to cores")
    nodes: dict[int, list[int]] = {}
    for cpu in cpus(root):
        nodes.setdefault(_node(root, cpu), []).append(cpu)
    have = sum(map(len, nodes.values()))
    if have < streams * threads:
        raise EngineError(
            f"pin=True: {streams} stream(s) of {threads} thread(s) need {streams * threads} cores of their "
            f"own, this process has {have}"
        )
    whole, rest = [], []
    for node in nodes.values():
        count = len(node) // threads
        whole += [node[i * threads :][:threads] for i in range(count)]
        rest += node[count * threads :]
    whole += [rest[i : i + threads] for i in range(0, len(rest), threads)]
    return [frozenset(cores) for cores in whole[:streams]]


def _node(root: Path, cpu: int) -> int:
    """The NUMA node of a CPU; 0 where the system does not say."""
    found = (root / f"sys/devices/system/cpu/cpu{cpu}").glob("node[0-9]*")
    return min((int(path.name.removeprefix("node")) for path in found), default=0)


def bind(cores: frozenset[int]) -> None:
    """Bind the calling thread, and the threads that are to help it, to some cores. For threads of bslite's
    own: there is no way back.
    """
    os.sched_setaffinity(0, cores)
    _here.cores = cores


def bound() -> frozenset[int] | None:
    """The cores that the calling thread is bound to by `bind`."""
    return _here.cores


class _Here(threading.local):
    cores: frozenset[int] | None = None


_here = _Here()
