"""Where a measurement comes from: the commit, the machine, the versions of what took part."""

import importlib.metadata
import os
import platform
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PACKAGES = ("bslite", "numpy", "numba", "llvmlite", "torch", "torchvision", "onnx", "onnxruntime", "openvino")
SIMD = (
    "sse4_2",
    "avx",
    "avx2",
    "fma",
    "avx512f",
    "avx512bw",
    "avx512vl",
    "avx512_bf16",
    "amx_tile",
    "asimd",
    "sve",
)


def machine() -> dict[str, Any]:
    """CPU model, cores and the SIMD it has, from the system's own description where there is one."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    found = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    flags = found.get("flags", found.get("Features", "")).split()
    affinity = getattr(os, "sched_getaffinity", None)
    return {
        "cpu": found.get("model name") or platform.processor() or platform.machine(),
        "cores": len(affinity(0)) if affinity else os.cpu_count(),
        "simd": [flag for flag in SIMD if flag in flags],
        "system": platform.platform(),
        "load": os.getloadavg() if hasattr(os, "getloadavg") else None,
    }


def versions() -> dict[str, str]:
    """Python and the packages that took part."""
    return {"python": platform.python_version(), **versions_of(PACKAGES)}


def versions_of(packages: Iterable[str]) -> dict[str, str]:
    """Of those that are installed."""
    found = {}
    for name in packages:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def commit() -> str:
    """The checkout's commit, marked where files differ from it."""
    git = ["git", "-C", str(ROOT), "describe", "--always", "--exclude=*", "--abbrev=12", "--dirty=+changes"]
    try:
        return subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def machine_line(data: dict[str, Any]) -> str:
    """``AMD EPYC (a note), 2 core(s) available``, of a run's header."""
    here = data["machine"]
    note = f" ({here['note']})" if here.get("note") else ""
    return f"{here['cpu']}{note}, {here['cores']} core(s) available"


def code_line(data: dict[str, Any]) -> str:
    """Commit and versions, of a run's header."""
    each = ", ".join(f"{name} {version}" for name, version in data["versions"].items())
    return f"Commit {data['commit']}. {each}."
