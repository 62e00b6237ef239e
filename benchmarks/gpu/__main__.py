"""``python -m benchmarks.gpu``: bslite against torch on this machine's GPU.

On an H100 with 16 cores the networks take four to six minutes, stacks and recurrent layers one or two.

Every network is first held against float64; then bslite, torch (NCHW, channels-last, in a CUDA graph) take
turns at batch 1, 16 and 128; then stacks of pool + batch norm + ReLU against the bandwidth of a copy,
DeepBench's recurrent layers against cuDNN, and, as far as the time goes,
``torch.compile(mode="max-autotune")``, which compiles for a minute or more each. No case is begun after
``--minutes``; results are written after every case, so a run that is stopped keeps what it has. ``--check``
comes before all that, on a GPU that the engine has not run on.
"""

import argparse
import contextlib
import importlib
import sys
import time
from collections.abc import Callable, Iterator

from benchmarks import output
from benchmarks.deepbench.points import cut_points
from benchmarks.gpu import report
from benchmarks.gpu.case import Case, network, recurrent, stack
from benchmarks.gpu.device import DeviceLost, Gpu, Host, NoGpu
from benchmarks.gpu.engines import QUICK
from benchmarks.gpu.limits import copying, measure
from benchmarks.gpu.measure import Result, compare
from benchmarks.peers.nets import NETS
from benchmarks.roofline import work
from benchmarks.tables import ms

BATCHES, DEPTHS, IMAGE = (1, 16, 128), (1, 2, 4, 8, 16, 40), (64, 56, 56)
STACK_BATCH, RECURRENT_BATCHES, STEPS = 128, (1, 2, 4), 50
#: Of a rehearsal on the CPU.
TINY = {"nets": ["squeezenet1_1"], "batch": [1], "depth": [1, 2], "layers": 1, "rounds": 1}


def main(arguments: list[str] | None = None) -> int:
    """Run it; exit code 1 if bslite has a wrong answer or no time somewhere, 2 if there is no GPU."""
    options = _options(arguments)
    if options.check:
        from benchmarks.gpu import check

        return check.run(check.layers(options.cases))
    try:
        importlib.import_module("bslite.reference")
    except ModuleNotFoundError as e:  # from a checkout alone everything else would be measured
        print(
            f"{e}: install bslite for this Python first, {sys.executable} -m pip install -e .",
            file=sys.stderr,
        )
        return 2
    try:
        device: Host = Host() if options.rehearse else Gpu()
    except NoGpu as e:
        print(e, file=sys.stderr)
        return 2
    run = output.Run("gpu", options, report.as_dict, report.markdown)
    end = time.monotonic() + options.minutes * 60
    run.header["device"] = device.describe()
    run.note(f"measuring what {run.header['device']['name']} can do")
    run.limits = measure(device)
    left_out: list[str] = run.header.setdefault("left_out", [])
    lost = False
    try:
        for part, cases in _parts(options, device):
            takes = options.compile_minutes * 60 if part == "autotuned" else 0
            for case in cases:
                if time.monotonic() + takes > end:
                    left_out.append(
                        f"{report.PARTS[part]}: from {case.name}, batch {case.batch} on, for want of time "
                        "(see --minutes, --parts)"
                    )
                    break
                result = Result(part, case.name, case.batch)
                _measure(case, device, result, options, run.note)
                each = ", ".join(f"{name} {ms(s, 3)}" for name, s in result.seconds.items()) or "nothing"
                run.add(result, f"{part}: {case.name} batch {case.batch}: {each} ms {result.failures or ''}")
                device.check()
    except DeviceLost as e:
        last = run.results[-1]
        left_out.append(
            f"everything after {last.part}: {last.name}, batch {last.batch}: the device "
            f"answers no more ({e}); python -m benchmarks.gpu --check finds out why"
        )
        lost = True
    finally:
        device.close()
    run.finish()
    return int(lost or any("bslite" not in r.seconds for r in run.results if r.part != "autotuned"))


def _measure(
    case: Case, device: Host, result: Result, options: argparse.Namespace, note: Callable[[str], None]
) -> None:
    """One case."""
    engines = {
        "autotuned": ("bslite", "max-autotune"),
        "recurrent": ("bslite", "bslite-graph", "torch", "torch-graph"),
    }.get(result.part, QUICK)  # fmt: skip
    if case.copies:
        result.copies = case.copies * copying(device, case.x)
    if result.part != "stacks":
        try:
            result.flops, result.bytes = work(case.spec, case.batch, case.x.shape)
        except Exception as e:  # a model that bslite cannot describe is a line of the report
            result.failures["bslite"] = f"{type(e).__name__}: {e}"
    with contextlib.suppress(Exception):  # what it is, bslite will say itself
        if missing := device.prepare(case.spec, case.x):
            note(f"{case.name} batch {case.batch}: {missing} kernels compiled")
    compare(case, device, result, engines, options.rounds)


def _parts(options: argparse.Namespace, device: Host) -> Iterator[tuple[str, Iterator[Case]]]:
    """What is measured, in the order of importance, made when its turn comes."""
    wanted: dict[str, Callable[[], Iterator[Case]]] = {
        "networks": lambda: (c for n in options.nets for c in network(n, options.batch, device)),
        "stacks": lambda: (stack(d, (options.stack_batch, *IMAGE), device) for d in options.depth),
        "recurrent": lambda: (
            c for p in cut_points(STEPS)[: options.layers] for c in recurrent(p, RECURRENT_BATCHES, device)
        ),
        "autotuned": lambda: (c for n in options.nets for c in network(n, options.batch, device)),
    }
    for part in options.parts:
        yield part, wanted[part]()


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = output.parser("gpu", __doc__)
    output.choice(parser, "--nets", NETS)
    parser.add_argument("--batch", nargs="+", type=int, default=list(BATCHES), help="(default: 1 16 128)")
    parser.add_argument("--depth", nargs="+", type=int, default=list(DEPTHS), help="of the stacks")
    parser.add_argument("--stack-batch", type=int, default=STACK_BATCH, help=f"(default: {STACK_BATCH})")
    parser.add_argument("--layers", type=int, help="of DeepBench's list, only the first so many")
    parser.add_argument("--rounds", type=int, default=7, help="rounds of turns (default: 7)")
    output.choice(parser, "--parts", report.PARTS)
    parser.add_argument(
        "--minutes", type=float, default=7.5, help="no case is begun after these (default: 7.5)"
    )
    parser.add_argument(
        "--compile-minutes", type=float, default=1.0, help="what a max-autotune takes (default: 1)"
    )
    parser.add_argument(
        "--check", action="store_true", help="nothing is measured: does the engine work here, layer by layer?"
    )
    parser.add_argument("--cases", type=int, default=1, help="of each op that --check takes (default: 1)")
    parser.add_argument(
        "--rehearse", action="store_true", help="on the CPU, tiny: shows that all runs, no more"
    )
    output.add_options(parser)
    options = parser.parse_args(arguments)
    if options.rehearse:
        for name, value in TINY.items():
            setattr(options, name, value)
        options.stack_batch = 1
    return options


if __name__ == "__main__":
    sys.exit(main())
