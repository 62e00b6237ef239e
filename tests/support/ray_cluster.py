"""Ray clusters of several nodes in this machine, of which nothing is left running."""

import os
import secrets
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

#: It reports nothing to anybody, and draws no progress.
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DATA_DISABLE_PROGRESS_BARS": "1"}
#: A node that is gone is missed within two seconds.
WATCH = {"RAY_health_check_period_ms": "500", "RAY_health_check_failure_threshold": "3"}
HOST = "127.0.0.1"  # the one for which Ray's servers listen to this machine alone
#: What would say how many threads a worker has in the place of Ray.
COUNTS = ("OMP_NUM_THREADS", "BSLITE_NUM_THREADS")
#: What all nodes are started with.
NODE = {"node_ip_address": HOST, "object_store_memory": 100 << 20, "include_dashboard": False}


@contextmanager
def running() -> Iterator[Any]:
    """A cluster, connected: a head that computes nothing and a node of two CPUs."""
    # A short path: it becomes part of a socket's, which has 107 characters at most.
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(prefix="ray") as folder:
        for name, value in {**QUIET, **WATCH}.items():
            patch.setenv(name, value)
        for name in COUNTS:
            patch.delenv(name, raising=False)
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[1]), prepend=os.pathsep)  # for `ray_workers`
        patch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))  # Ray would keep one in the user's folder
        import ray
        from ray.cluster_utils import Cluster

        # A client would look for the cluster at the machine's address in its network.
        patch.setattr(ray._private.services, "resolve_ip_for_localhost", str)
        cluster = Cluster(initialize_head=True, head_node_args={**NODE, "num_cpus": 0, "temp_dir": folder})
        try:
            cluster.add_node(**NODE, num_cpus=2)
            ray.init(address=cluster.address, log_to_driver=False, _node_ip_address=HOST)
            yield cluster
        finally:
            ray.shutdown()
            cluster.shutdown()
            left = _left(folder)
        assert not left, f"Ray left running: {left}"


def _left(folder: str) -> list[str]:
    """The command lines of the processes that use ``folder`` and do not end within 20 seconds."""
    until = time.monotonic() + 20
    while (found := _processes(folder)) and time.monotonic() < until:
        time.sleep(0.1)
    return found


def _processes(folder: str) -> list[str]:
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and int(process.name) != os.getpid():
            try:
                line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:  # it has ended
                continue
            if folder in line:
                found.append(line)
    return found
