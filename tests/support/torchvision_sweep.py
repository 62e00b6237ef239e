"""Every torchvision model through `from_torch`: what is native, what is missing, are the answers right.

``python tests/support/torchvision_sweep.py [PREFIX ...]`` checks the models whose names begin with a prefix
(all without one), a line for each as it is done, and keeps the results in ``docs/models.json``; several runs
make up one table. ``--ways`` adds whether `optimize` leaves nothing to torch and whether the model exported
to ONNX and read back is right. ``--missing`` only converts, at small sizes. ``--table`` prints the table of
docs/models.md.

Right means: the relative L2 distance from torch in float64 is at most 4 times torch's own in float32. The
norm is taken over one image; where that is out of the bound, over 24. A network whose weights are random may
amplify rounding a thousandfold, and then which of two float32 engines is further off on one image is a
lottery: on regnet_y_1_6gf torch's own convolutions without oneDNN are out of the bound against torch on 3 of
24 images (up to 10 times its error), torch with channels_last on 2, the NumPy reference on 1, bslite on 6.
"""

import argparse
import gc
import json
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

import bslite
from bslite.verification import FACTOR, TINY

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.torchvision_models import import_models, model

RESULTS = Path(__file__).parents[2] / "docs" / "models.json"
#: Longest prefix -> side of the image checked; where the model leaves a choice, small enough for a sweep.
SIDES = {
    "": 64, "inception_v3": 96, "squeezenet": 96,
    "maxvit": 224, "swin": 112, "swin_v2": 128, "vit": 224,
    "convnext": 96, "densenet": 96, "vgg": 96, "alexnet": 96,
    "mvit": 224, "s3d": 224, "swin3d": 96,
}  # fmt: skip
FRAMES = {"": 8, "mvit": 16, "s3d": 16}  # of a video
IMAGES = (1, 24)  # the norm is over so many; the second where the first is out of the bound

Row = dict[str, Any]


def of_prefix(table: dict[str, int], name: str) -> int:
    """The entry of the longest prefix of ``name``."""
    return table[max((p for p in table if name.startswith(p)), key=len)]


def subjects() -> dict[str, str]:
    """Model name -> its kind: classification, segmentation or video."""
    models = import_models()
    kinds = {"classification": models, "segmentation": models.segmentation, "video": models.video}
    return {name: kind for kind, module in kinds.items() for name in models.list_models(module=module)}


def example(name: str, kind: str, number: int = 0) -> Any:
    """The model's seeded input ``number``, of its sizes."""
    side = of_prefix(SIDES, name)
    frames = (of_prefix(FRAMES, name),) if kind == "video" else ()
    return torch.randn(1, 3, *frames, side, side, generator=torch.manual_seed(3 + number))


def build(name: str, kind: str) -> Any:
    """The model in eval mode, seeded weights; segmentation without the second classifier of training."""
    options = {"weights_backbone": None} if kind == "segmentation" else {}
    return model(name, **options)


def convert(module: Any, x: Any) -> tuple[Any, list[str]]:
    """The model, or None and what is unsupported, a line for each operation."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return bslite.from_torch(module, x), []
    except bslite.UnsupportedError as e:
        return None, [line.strip().partition("; at ")[0] for line in str(e).splitlines()[1:]] or [str(e)]


def relative(got: Sequence[Any], want: Sequence[Any]) -> float:
    """Distance over all outputs in relative L2."""
    pairs = list(zip(got, want, strict=True))
    off = sum(float(((g.double() - w) ** 2).sum()) for g, w in pairs)
    return float((off / sum(float((w**2).sum()) for _, w in pairs)) ** 0.5)


class Judge:
    """torch's answers in float32 and float64 for as many images as it takes."""

    def __init__(self, name: str, kind: str) -> None:
        self.name, self.kind = name, kind
        self.theirs: list[Any] = []
        self.exact: list[Any] = []

    def images(self, count: int) -> list[Any]:
        """The first ``count`` inputs."""
        return [example(self.name, self.kind, number=i) for i in range(count)]

    def error(self, answer: Callable[[Any], Any], count: int) -> tuple[float, float]:
        """Of ``answer``, and of torch in float32, over ``count`` images."""
        if len(self.theirs) < count:
            module = build(self.name, self.kind)
            with torch.no_grad():
                self.theirs = [leaves(module(x)) for x in self.images(count)]
                module = module.double()
                self.exact = [leaves(module(x.double())) for x in self.images(count)]
            del module
            gc.collect()
        exact = leaves(self.exact[:count])
        with torch.no_grad():
            ours = leaves([answer(x) for x in self.images(count)])
        return relative(ours, exact), relative(leaves(self.theirs[:count]), exact)

    def row(self, answer: Callable[[Any], Any]) -> Row:
        """Error, torch's, the number of images and whether it is within the bound."""
        for count in IMAGES:
            error, peer = self.error(answer, count)
            right = error <= FACTOR * peer + TINY
            if right:
                break
        return {"error": error, "peer": peer, "right": right, "images": count}


def leaves(output: Any) -> list[Any]:
    """All tensors of a result, as from_torch orders them."""
    return [t for t in torch.utils._pytree.tree_leaves(output) if isinstance(t, torch.Tensor)]


def check(name: str, kind: str) -> Row:
    """One row of the table: the model converted, run, and compared with torch in float32 and float64."""
    start = time.perf_counter()
    x = example(name, kind)
    row: Row = {"kind": kind, "input": list(x.shape)}
    spec, missing = convert(build(name, kind), x)
    row["missing"] = missing
    if spec is not None:
        row["layers"] = len(spec.nodes)
        row |= Judge(name, kind).row(lambda x: bslite.run(spec, x))
    row["seconds"] = round(time.perf_counter() - start, 1)
    return row


def other_ways(name: str, kind: str) -> Row:
    """The same model through `optimize`, nothing left to torch, and by way of ONNX: "yes" where the answer is
    within the bound, else what is wrong.
    """
    judge = Judge(name, kind)

    def judged(made: Callable[[], Callable[[Any], Any]]) -> str:
        try:
            row = judge.row(made())
        except Exception as e:
            return f"{type(e).__name__}: {str(e).splitlines()[0][:120]}"
        finally:
            gc.collect()
        return "yes" if row["right"] else f"error {row['error']:.1e}, torch {row['peer']:.1e}"

    def optimized() -> Callable[[Any], Any]:
        return bslite.optimize(build(name, kind), fallback="error", tune=False)

    def from_file(exporter: str) -> Callable[[Any], Any]:
        # In a process of its own: torch's exporter takes several times the model's memory, and keeps it.
        with tempfile.TemporaryDirectory() as folder:
            file = f"{folder}/model.onnx"
            done = subprocess.run(
                [sys.executable, __file__, name, "--export", file, "--exporter", exporter],
                capture_output=True,
                text=True,
            )
            if done.returncode:
                raise RuntimeError(f"export: {done.stderr.strip().splitlines()[-1]}")
            spec = bslite.from_onnx(file)
        return lambda x: bslite.run(spec, x)

    def by_either_exporter() -> Callable[[Any], Any]:
        try:
            return from_file("torchscript")
        except Exception:  # the older one does not know every operation, or writes sequences of tensors
            return from_file("dynamo")

    return {"optimize": judged(optimized), "onnx": judged(by_either_exporter)}


def export(name: str, kind: str, file: str, exporter: str) -> None:
    """The model as an ONNX file."""
    dynamo = exporter == "dynamo"
    how: dict[str, Any] = {"verbose": False} if dynamo else {"opset_version": 17}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(build(name, kind), (example(name, kind),), file, dynamo=dynamo, **how)


def line(name: str, row: Row) -> str:
    """One row as a line of Markdown's table."""
    size = "x".join(map(str, row["input"]))
    if "error" not in row:
        return f"| {name} | {size} | | not native: {'; '.join(row['missing'])} | | | | |"
    ratio = row["error"] / max(row["peer"], TINY)
    ways = f"{row.get('optimize', '')} | {row.get('onnx', '')}"
    over = f" (over {row['images']} images)" if row.get("images", 1) > 1 else ""
    right = ("yes" if row["right"] else "NO") + over
    return f"| {name} | {size} | {row['layers']} | native | {ratio:.2f} | {right} | {ways} |"


def table(rows: dict[str, Row]) -> str:
    """docs/models.md."""
    parts = ["# torchvision's models", "", __doc__.split("\n\n", 1)[1].strip(), ""] if __doc__ else []
    for kind in ("classification", "segmentation", "video"):
        here = {name: row for name, row in rows.items() if row["kind"] == kind}
        parts += [f"## {kind.capitalize()}", "", HEAD, *(line(n, r) for n, r in sorted(here.items())), ""]
    return "\n".join(parts)


HEAD = (
    "| model | input | layers | runs | error, as a multiple of torch's | within the bound"
    " | by optimize | by ONNX |\n|" + "---|" * 8
)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("prefix", nargs="*", default=[""])
    parser.add_argument("--missing", action="store_true", help="only convert and list what is unsupported")
    parser.add_argument("--ways", action="store_true", help="through optimize and ONNX, into the same table")
    parser.add_argument("--table", action="store_true", help="print the table of the results so far")
    parser.add_argument("--export", metavar="FILE", help="only write the model as an ONNX file")
    parser.add_argument("--exporter", choices=("torchscript", "dynamo"), default="torchscript")
    args = parser.parse_args()
    if args.export:
        (name,) = args.prefix
        export(name, subjects()[name], args.export, args.exporter)
        return
    rows = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if args.table:
        print(table(rows))
        return
    for name, kind in subjects().items():
        if not name.startswith(tuple(args.prefix)):
            continue
        if args.missing:
            _, missing = convert(build(name, kind), example(name, kind))
            print(f"{name}: {'ok' if not missing else ''}", *missing, sep="\n    ", flush=True)
        elif args.ways:
            rows[name] = rows.get(name, {}) | other_ways(name, kind)
            RESULTS.write_text(json.dumps(rows, indent=1, sort_keys=True) + "\n")
            print(name, rows[name]["optimize"], rows[name]["onnx"], sep=" | ", flush=True)
        else:
            rows[name] = rows.get(name, {}) | check(name, kind)
            RESULTS.write_text(json.dumps(rows, indent=1, sort_keys=True) + "\n")
            print(line(name, rows[name]), f"{rows[name]['seconds']} s", flush=True)
        gc.collect()


if __name__ == "__main__":
    main()
