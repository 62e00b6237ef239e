"""The smallest model that shows a fault, in a folder with its inputs and a script that runs it."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bslite import verification
from bslite.passes.rewrite import needed, params_of
from bslite.spec import Array, Input, ModelSpec

SCRIPT = '''"""{title}

Run it: it prints the errors of every layer, and exits with 1 if one is out of bound.
"""

from pathlib import Path

import numpy as np

import bslite

here = Path(__file__).resolve().parent
spec = bslite.load(here / "model.safetensors")
with np.load(here / "arrays.npz", allow_pickle=False) as arrays:
    inputs = [arrays[f"input{{i}}"] for i in range(len(spec.inputs))]
    expected = arrays["torch"] if "torch" in arrays.files else None
print(spec)
result = bslite.verify(spec, inputs, backend={backend!r})
print(result)
passed = result.passed
if expected is not None:
    made = bslite.run(spec, inputs, backend="reference")
    error = np.linalg.norm(made.astype(np.float64) - expected) / max(np.linalg.norm(expected), 1e-300)
    print(f"relative distance of the reference from torch's value: {{error:.2e}}")
    passed = passed and error < 1e-4
raise SystemExit(0 if passed else 1)
'''


@dataclass(frozen=True)
class Suspect:
    """A layer of ``spec`` that departs on ``inputs``. ``expected``: torch's, if the translation is wrong."""

    spec: ModelSpec
    inputs: Sequence[Array]
    layer: str
    op: str
    fault: str
    reason: str
    known: Collection[str] = ()  # layers whose values were found right
    expected: Array | None = None
    engine: verification.Engine = verification.CPU


def narrowed(
    spec: ModelSpec,
    outputs: Sequence[str],
    given: Collection[str] = (),
    example: dict[str, Array] | None = None,
) -> ModelSpec:
    """The part of ``spec`` that makes ``outputs``; values ``given`` become inputs, as in ``example``."""
    kept = needed([n for n in spec.nodes if n.name not in given], outputs)
    read = {*outputs, *(name for n in kept for name in n.inputs)}
    inputs = [i for i in spec.inputs if i.name in read]
    for name in (n.name for n in spec.nodes if n.name in read and n.name in given):
        value = (example or {})[name]
        inputs.append(Input(name, value.shape, value.shape, value.dtype.name))
    params = params_of(kept, spec.params)
    # A model must have an input, also where all that is left of it are constants.
    return ModelSpec(spec.name, tuple(inputs) or spec.inputs[:1], tuple(kept), tuple(outputs), params)


def write(
    suspect: Suspect, spec: ModelSpec, inputs: Sequence[Array], folder: str | Path | None = None
) -> Path:
    """Write the model ``spec`` that shows the fault on ``inputs``, and the script; returns the folder."""
    label = re.sub(r"[^\w.-]+", "_", suspect.layer)
    where = Path(folder) if folder is not None else Path(f"bslite-{label}")
    where.mkdir(parents=True, exist_ok=True)
    spec.save(where / "model.safetensors")
    arrays = {f"input{i}": x for i, x in enumerate(inputs)}
    if suspect.expected is not None:
        arrays["torch"] = suspect.expected
    np.savez(where / "arrays.npz", **arrays)  # type: ignore[arg-type]
    title = f"Layer {suspect.layer} ({suspect.op}) of {suspect.spec.name}: {suspect.reason}."
    text = SCRIPT.format(title=title.replace("\\", "/").replace('"""', "'''"), backend=suspect.engine.backend)
    (where / "reproduce.py").write_text(text, encoding="utf-8")
    return where


def smallest(suspect: Suspect) -> tuple[ModelSpec, list[Array]]:
    """The layer alone; or with the layers before it that the engine computes with it in one; or with all
    before it: whichever shows the fault first. The whole model if none does.
    """
    from bslite.reference import layers

    spec = suspect.spec
    by_name = {i.name: x for i, x in zip(spec.inputs, suspect.inputs, strict=True)}
    constants = {n.name for n in spec.nodes if not n.inputs}
    single = {node.name: value for node, value in layers(spec, list(suspect.inputs), np.float32)}
    before = set(single) - constants - {suspect.layer}
    for given in (before, before & set(suspect.known), set()):
        small = narrowed(spec, [suspect.layer], given, single)
        arrays = [by_name[i.name] if i.name in by_name else single[i.name] for i in small.inputs]
        if suspect.fault == "translation" or not verification.outputs_pass(small, arrays, suspect.engine):
            return small, arrays
    return spec, list(suspect.inputs)
