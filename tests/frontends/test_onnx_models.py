"""torchvision's networks exported to ONNX and read back: the same answer as torch's, at small sizes.

    PYTHONPATH=tests python tests/frontends/test_onnx_models.py [model ...]

does it for every classification model of torchvision at its own size, with both of torch's exporters, and
prints a line for each: half an hour and more.
"""

import io
import sys
import time
import warnings
from typing import Any

import numpy as np
import pytest
from support.check import assert_three_way, rel_l2
from support.networks import networks
from support.onnx_models import onnx
from support.torch_modules import torch
from support.torch_three_way import by_torch
from support.torchvision_models import import_models, model

from bslite import BsliteError, ModelSpec, from_onnx, reference, run

assert onnx
SIDE = 64  # of the images
#: The other networks are left to the sweep.
SMALL = (
    "resnet18", "mobilenet_v3_small", "squeezenet1_1", "shufflenet_v2_x1_0", "efficientnet_b0", "swin_t",
)  # fmt: skip


def export(module: Any, size: int, dynamo: bool = False, folded: bool = True) -> bytes:
    """An ONNX file of ``module`` with the batch left open. ``folded``: batch norms folded into weights, in
    float32, which is what the exporters do unless the older one is told not to.
    """
    x = torch.zeros(2, 3, size, size)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if dynamo:
            batch = ({0: torch.export.Dim("batch")},)
            program = torch.onnx.export(module, (x,), dynamo=True, dynamic_shapes=batch, verbose=False)
            made: bytes = program.model_proto.SerializeToString()
            return made
        file = io.BytesIO()
        torch.onnx.export(
            module, (x,), file, dynamo=False, input_names=["x"], dynamic_axes={"x": {0: "batch"}},
            training=torch.onnx.TrainingMode.EVAL if folded else torch.onnx.TrainingMode.PRESERVE,
        )  # fmt: skip
    return file.getvalue()


def images(size: int, batch: int) -> Any:
    return torch.randn(batch, 3, size, size, generator=torch.manual_seed(1))


def same_model(module: Any, spec: ModelSpec, size: int, batch: int = 2, bound: float = 1e-6) -> float:
    """How far torch's float64 is from ours, which is another model if that is more than ``bound``.

    A file holds in float32 what the module has as Python numbers (an epsilon, a scale): 3e-8 in maxvit_t.
    Where batch norms are folded, every weight is rounded anew: 1.8e-5 there. So this is asked of files in
    which they are left as they are, and otherwise of small networks only.
    """
    x = images(size, batch)
    (ours,), (_, (exact,)) = reference.run(spec, [x.numpy()], np.float64), by_torch(module, x)
    error = rel_l2(ours, exact)
    assert error <= bound
    return error


def compared(module: Any, spec: ModelSpec, size: int, batch: int = 2) -> tuple[float, float]:
    """Relative errors of bslite and of torch in float32 against torch in float64, bound checked."""
    x = images(size, batch)
    (peer,), (exact,) = by_torch(module, x)
    got = run(spec, x.numpy())
    assert_three_way(got, peer, exact)
    return rel_l2(got, exact), rel_l2(peer, exact)


@pytest.mark.parametrize("name", networks(SMALL))
def test_agrees_with_torch(name: str) -> None:
    module = model(name)
    spec = from_onnx(export(module, SIDE))
    assert spec.inputs[0].shape == ("N", 3, SIDE, SIDE)
    compared(module, spec, SIDE)
    same_model(module, spec, SIDE, bound=1e-5)
    same_model(module, from_onnx(export(module, SIDE, folded=False)), SIDE)


@pytest.mark.networks
def test_the_other_exporter() -> None:
    """torch's newer exporter, which goes through torch.export and writes other graphs."""
    pytest.importorskip("onnxscript")
    module = model("mobilenet_v3_small")
    spec = from_onnx(export(module, SIDE, dynamo=True))
    assert spec.inputs[0].shape == ("N", 3, SIDE, SIDE)
    compared(module, spec, SIDE)
    same_model(module, spec, SIDE, bound=1e-5)


def sweep(names: list[str]) -> None:
    """Every classification model of torchvision, or those named."""
    models = import_models()
    for name in names or models.list_models(module=models):
        size = 299 if name == "inception_v3" else 224
        for dynamo in (False, True):
            began, exporter = time.perf_counter(), "dynamo" if dynamo else "script"
            try:
                module = model(name)
                spec = from_onnx(export(module, size, dynamo))
                ours, theirs = compared(module, spec, size, 1)
                if not dynamo:
                    same_model(module, from_onnx(export(module, size, folded=False)), size, 1)
                result = f"ok: {len(spec.nodes)} layers, {ours:.2e}, torch {theirs:.2e}"
            except (BsliteError, AssertionError) as e:
                result = f"FAILED: {type(e).__name__}: {e}"
            except Exception as e:
                result = f"not exported: {type(e).__name__}: {str(e)[:200]}"
            print(f"{name} ({exporter}, {time.perf_counter() - began:.0f} s): {result}", flush=True)


if __name__ == "__main__":
    sweep(sys.argv[1:])
