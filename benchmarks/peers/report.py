"""The comparison as data and as tables."""

from __future__ import annotations

import datetime
import importlib.metadata
import math
import os
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.peers.engines import ENGINES
from benchmarks.peers.measure import Result
from benchmarks.roofline import Roofline

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
ROOT = Path(__file__).parents[2]


def as_dict(results: Sequence[Result], roofline: Roofline, options: dict[str, Any]) -> dict[str, Any]:
    """Everything, ready for JSON."""
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "commit": commit(),
        "options": options,
        "machine": machine(),
        "versions": versions(),
        "roofline": {**asdict(roofline), "bandwidth": roofline.bandwidth},
        "results": [
            {**asdict(r), "best_peer": r.best_peer, "ratio": r.ratio, **_floors(r, roofline)} for r in results
        ],
    }


def markdown(results: Sequence[Result], roofline: Roofline) -> str:
    """One table per batch size, then what failed, what was measured and on what."""
    batches = dict.fromkeys(r.batch for r in results)
    parts = [_table([r for r in results if r.batch == batch], roofline) for batch in batches]
    failures = [
        f"- {r.net}, batch {r.batch}, {engine}: {why}" for r in results for engine, why in r.failures.items()
    ]
    if failures:
        parts.append("Without a time:\n\n" + "\n".join(failures))
    here = machine()
    gflops = ", ".join(f"{name} {rate / 1e9:.0f}" for name, rate in roofline.sgemm.items())
    fma = "" if roofline.fma is None else f"; own microkernel {roofline.fma / 1e9:.0f} GFLOP/s"
    parts.append(
        f"{here['cpu']}, {roofline.threads} thread(s), {here['cores']} core(s) available. "
        f"SGEMM {gflops} GFLOP/s{fma}. Memory: copy {roofline.copy / 1e9:.1f}, "
        f"read {roofline.read / 1e9:.1f} GB/s. Commit {commit()}. "
        + ", ".join(f"{name} {version}" for name, version in versions().items())
        + "."
    )
    return "\n\n".join(parts) + "\n"


def _floors(result: Result, roofline: Roofline) -> dict[str, float | None]:
    """Seconds the network takes at least, by SGEMM's rate and by our own microkernel's, and their shares."""
    ours = result.seconds.get("bslite")
    floors: dict[str, float | None] = {"floor": None, "fma_floor": None}
    if result.flops is not None and result.bytes is not None:
        floors["floor"] = roofline.floor(result.flops, result.bytes)
        floors["fma_floor"] = roofline.fma_floor(result.flops, result.bytes)
    shares = {f"{name}_share": s / ours if s and ours else None for name, s in floors.items()}
    return {**floors, **shares}


def _table(results: Sequence[Result], roofline: Roofline) -> str:
    engines = [e for e in ENGINES if any(e in r.seconds for r in results)]
    with_fma = roofline.fma is not None
    header = ["net", *engines, "best peer", "best / bslite", "floor", "share"]
    header += ["FMA floor", "share"] if with_fma else []
    rows = [header, ["---"] + ["---:"] * (len(header) - 1)]
    for r in results:
        row = [r.net, *(_ms(r.seconds.get(e)) for e in engines), r.best_peer or "-", _ratio(r.ratio)]
        floors = _floors(r, roofline)
        row += [_ms(floors["floor"]), _share(floors["floor_share"])]
        row += [_ms(floors["fma_floor"]), _share(floors["fma_floor_share"])] if with_fma else []
        rows.append(row)
    mean = ["geometric mean"] + [""] * len(engines) + ["", _ratio(geometric_mean([r.ratio for r in results]))]
    rows.append(mean + [""] * (len(header) - len(mean)))
    title = f"Batch {results[0].batch}, {results[0].threads} thread(s); ms, medians of interleaved rounds"
    note = (
        "`best / bslite` above 1: bslite is faster than the best of the others. `floor`: what arithmetic at"
        " the rate of SGEMM, or weights, input and output at the speed of memory, take at least; `share`: of"
        " bslite's time."
    )
    return "\n".join([f"**{title}**", "", *("| " + " | ".join(row) + " |" for row in rows), "", note])


def geometric_mean(values: Sequence[float | None]) -> float | None:
    """Of the values there are."""
    logs = [math.log(v) for v in values if v]
    return math.exp(sum(logs) / len(logs)) if logs else None


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{1e3 * seconds:.1f}"


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.0f} %"


def machine() -> dict[str, Any]:
    """CPU model, cores and the SIMD it has, from the system's own description where there is one."""
    cpu, flags = platform.processor() or platform.machine(), ""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            cpu = value.strip()
        elif key.strip() in ("flags", "Features"):
            flags = value
    affinity = getattr(os, "sched_getaffinity", None)
    return {
        "cpu": cpu,
        "cores": len(affinity(0)) if affinity else os.cpu_count(),
        "simd": [flag for flag in SIMD if flag in flags.split()],
        "system": platform.platform(),
        "load": os.getloadavg() if hasattr(os, "getloadavg") else None,
    }


def versions() -> dict[str, str]:
    """Python and the packages that took part."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def commit() -> str:
    """The checkout's commit, marked where files differ from it."""
    try:
        git = ["git", "-C", str(ROOT)]
        head = subprocess.run(
            [*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True
        )
        dirty = subprocess.run(
            [*git, "status", "--porcelain", "-uno"], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head.stdout.strip() + ("+changes" if dirty.stdout.strip() else "")
