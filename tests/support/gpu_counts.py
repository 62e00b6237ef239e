"""A network's kernels, run as PTX on the CPU: what they do, counted, and what that would take at best.

    python tests/support/gpu_counts.py mobilenet_v2 [--size 224] [--batch 1]

A line per step: instructions of a warp, the share of multiply-adds, bytes of sectors of memory per byte of
values, passes over shared memory per fewest possible (1: no bank conflicts), and microseconds on a GPU that
issues an instruction per scheduler and cycle. PTX is not machine code: the assembler folds addresses and
unrolls loops, so these are upper bounds of a kind.
"""

import argparse
import os
import sys
import time
from pathlib import Path

from support.noise import noise

if __name__ == "__main__":
    os.environ["NUMBA_ENABLE_CUDASIM"] = "1"
    sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]

import numpy as np

import bslite
from bslite import reference
from bslite.engines.cuda import engine, session
from support.ptx_gpu import PtxDriver, watched

SCHEDULERS = 4  # of an SM, each of which starts an instruction of a warp per cycle


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("network")
    parser.add_argument("--size", type=int, default=224, help="of images (224)")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--layerwise", action="store_true")
    given = parser.parse_args()

    import torch

    from support.torchvision_models import model

    module = model(given.network).eval()
    x = noise(given.batch, 3, given.size, given.size)
    spec = bslite.from_torch(module, torch.from_numpy(x))
    driver = PtxDriver()
    engine.driver_for = lambda device=0: driver  # type: ignore[assignment]
    session.launches = watched  # type: ignore[assignment]
    start = time.perf_counter()
    (got,) = engine.run(spec, [x], layerwise=given.layerwise)
    seconds = time.perf_counter() - start
    exact, peer = (reference.run(spec, [x], kind)[0] for kind in (np.float64, np.float32))
    errors = [float(np.linalg.norm(y - exact) / np.linalg.norm(exact)) for y in (got, peer)]
    print(f"{given.network}: error {errors[0]:.2g} (reference in float32 {errors[1]:.2g}), {seconds:.0f} s")

    machine = driver.machine
    issue = machine.clock * SCHEDULERS
    total = 0.0
    print(
        f"{'us':>7} {'blocks':>7} {'threads':>7} {'Mwarp':>8} {'fma %':>6} {'sectors':>8} {'passes':>7}  step"
    )
    for step, counted in driver.counted:
        warps = counted.warps.sum()
        fma = counted.of("fma", counted.warps)
        sectors = counted.sectors.sum()
        moved = sum(
            threads * (8 if "64" in line.split()[0] else 4)
            for line, threads in zip(counted.program.lines, counted.threads, strict=True)
            if ".global" in line
        )
        passes, fewest = counted.passes
        blocks = int(np.prod(step.grid))
        threads = int(np.prod(step.block))
        busy = min(blocks, machine.sms) / machine.sms  # a last, smaller wave of blocks is left out
        at_best = max(
            warps / (issue * machine.sms * busy), sectors * 32 / machine.l2_bandwidth / max(busy, 0.2)
        )
        total += at_best
        print(
            f"{at_best * 1e6:7.2f} {blocks:7d} {threads:7d} {warps / 1e6:8.3f} {fma / warps * 100:6.1f} "
            f"{sectors * 32 / max(1, moved):8.2f} {passes / max(1, fewest):7.2f}  {step.kernel} "
            f"{' + '.join(step.layers)[:60]}"
        )
    print(f"{total * 1e6:.0f} us in {len(driver.counted)} launches")


if __name__ == "__main__":
    main()
