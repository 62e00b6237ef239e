"""`bslite.report` says what ran where; `bslite.bisect` finds the layer at fault and writes it down."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.dropin_models import Net, Stack, agree, images, nn, torch, wrapped
from support.process import printed, python
from support.torch_modules import Made

import bslite
from bslite.engines.cpu import constants
from bslite.frontends.torch.builders import TABLE
from bslite.plan import Const


def deep() -> Any:
    """Residual blocks around convolutions, an odd operation, and a classifier."""

    def forward(net: Any, x: Any) -> Any:
        x = net.stem(x)
        for block in net.blocks:
            x = (x + block(x)).relu()
        return net.fc(net.pool(x).mean((2, 3)))

    stem = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())
    blocks = nn.ModuleList([nn.Conv2d(16, 16, 3, padding=1) for _ in range(4)])
    return Made(forward, stem=stem, blocks=blocks, pool=nn.MaxPool2d(2), fc=nn.Linear(16, 5)).eval()


def test_the_report_before_and_after() -> None:
    fast = bslite.optimize(Net().eval())
    assert "not specialised yet" in str(bslite.report(fast))
    agree(fast, fast._bslite_runner.module, images(2))
    agree(fast, fast._bslite_runner.module, images(4))
    seen = bslite.report(fast)
    (kind,) = seen.kinds
    assert kind.shapes == (((2, 3, 9, 9),), ((4, 3, 9, 9),))
    assert (kind.parts[0].first, kind.parts[0].last) == ("conv1", "fc")
    assert kind.parts[0].share == 1
    text = str(seen)
    assert "inputs [2, 3, 9, 9]; [4, 3, 9, 9]: " in text
    assert "measured" in text
    json.dumps(seen.as_dict())


def test_the_report_names_what_is_unsupported_and_calls_in_torch() -> None:
    net = Stack(lambda x: torch.special.erfinv(0.5 * torch.tanh(x))).eval()
    fast = wrapped(net, fallback="silent")
    x = torch.randn(3, 12)
    agree(fast, net, x)
    fast(x)  # gradients are enabled
    seen = bslite.report(fast)
    assert seen.kinds[0].unsupported[0].operation == "aten.special_erfinv.default"
    assert "torch: 1 x aten.special_erfinv.default; at the model's own forward" in str(seen)
    assert "1 call(s) ran in torch: gradients are enabled" in str(seen)


def test_a_sound_model_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for net in (deep(), bslite.optimize(Net().eval())):
        found = bslite.bisect(net, images())
        assert found.passed
        assert found.checks
        assert "none departs" in str(found)
    assert list(tmp_path.iterdir()) == []


def plant(monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    """A weight of the engine's packed wrong: the constants made from the parameter ``key``."""
    make = constants.make

    def faulty(const: Const, params: Any) -> Any:
        data = make(const, params)
        if key in const.keys:
            data[2] += 1
        return data

    monkeypatch.setattr(constants, "make", faulty)


@pytest.mark.parametrize(
    ("key", "layers"),
    [
        ("blocks.2.weight", ("blocks.2", "add#3", "relu#3")),
        ("stem.1/folded.weight", ("stem.0", "stem.1", "stem.2")),
        ("fc.bias", ("fc",)),
    ],
)
def test_a_fault_in_the_engine_is_found(
    key: str, layers: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch, key)
    found = bslite.bisect(deep(), images(), folder=tmp_path / "fault")
    assert not found.passed
    assert found.fault == "engine"
    assert found.layer in layers
    assert found.folder == tmp_path / "fault"
    assert all(c.passed for c in found.checks[:-1])
    small = bslite.load(tmp_path / "fault" / "model.safetensors")
    assert {n.name for n in small.nodes} <= set(layers)
    assert found.layer in str(found)


@pytest.mark.processes
def test_the_reproduction_runs_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its script fails where the fault is, and passes where it is not."""
    with monkeypatch.context() as patch:
        plant(patch, "blocks.1.weight")
        found = bslite.bisect(deep(), images(), folder=tmp_path / "fault")
    assert found.folder is not None
    script = found.folder / "reproduce.py"
    said = printed(script)
    assert "passed" in said
    assert found.layer in said
    faulty = f"""
import runpy
from bslite.engines.cpu import constants
make = constants.make
def bad(const, params):
    data = make(const, params)
    if "blocks.1.weight" in const.keys: data[2] += 1
    return data
constants.make = bad
runpy.run_path({str(script)!r})
"""
    shown = python(faulty)
    assert shown.returncode == 1, shown.stderr
    assert "FAILED" in shown.stdout


def test_a_fault_in_the_translation_is_told_from_one_in_the_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(TABLE, "max_pool2d", lambda s, x, *a: s.emit("avg_pool2d", x, kernel=2))
    found = bslite.bisect(deep(), images(), folder=tmp_path / "fault")
    assert (found.layer, found.fault) == ("pool", "translation")
    assert "torch computes something else" in str(found)
    with np.load(tmp_path / "fault" / "arrays.npz") as arrays:
        assert arrays["torch"].shape == (2, 16, 4, 4)
    ran = python(tmp_path / "fault" / "reproduce.py")
    assert ran.returncode == 1
    assert "relative distance of the reference from torch's value" in ran.stdout


def test_a_fault_only_depth_first_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine as it runs when nobody looks answers wrong, layer by layer it answers right."""
    from bslite import verification
    from bslite.engines import cpu

    run = cpu.run

    def faulty(spec: Any, inputs: Any, **options: Any) -> Any:
        results = run(spec, inputs, **options)
        if any(n.name == "blocks.2" for n in spec.nodes) and any(n.name == "stem.0" for n in spec.nodes):
            results = [y + 1 for y in results]
        return results

    monkeypatch.setattr(cpu, "run", faulty)
    found = bslite.bisect(deep(), images(), folder=tmp_path / "fault")
    assert (found.layer, found.fault) == ("blocks.2", "engine")
    assert "depth-first" in str(found)
    small = bslite.load(tmp_path / "fault" / "model.safetensors")
    x = [np.load(tmp_path / "fault" / "arrays.npz")["input0"]]
    assert not verification.outputs_pass(small, x)


def test_bisect_beside_unsupported_operations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net = nn.Sequential(
        Stack(lambda x: torch.special.erfinv(0.5 * torch.tanh(x))), nn.ReLU(), nn.Linear(7, 3)
    )
    found = bslite.bisect(net.eval(), torch.randn(3, 12))
    assert found.passed
    assert "of the flops are torch's and were not compared" in str(found)
    plant(monkeypatch, "2.bias")
    found = bslite.bisect(net, torch.randn(3, 12), folder=tmp_path / "fault")
    assert found.layer == "2"


def test_bisect_refuses_what_it_cannot_take() -> None:
    with pytest.raises(bslite.InputError, match=r"takes a torch\.nn\.Module, got Tensor"):
        bslite.bisect(images(), images())
    with pytest.raises(bslite.InputError, match="needs a tensor"):
        bslite.bisect(Net().eval(), (3,))
    with pytest.raises(bslite.SpecError, match="training mode"):
        bslite.bisect(Net(), images())


def test_sizes_that_one_trace_serves_are_told_and_explained_once() -> None:
    net = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()
    module = wrapped(net)
    with torch.no_grad():
        for length in (5, 6, 9, 7, 8):
            module(torch.randn(1, length, 16))
    report = bslite.report(module)
    assert len(report.kinds) == 5
    text = str(report)
    assert text.count("inputs [") == 2
    assert "inputs [1, 5, 16]:" in text
    assert "inputs [1, 6 to 9, 16]:" in text
    found = bslite.explain(module, runs=2, limits=False)
    assert [str(part).partition(", 1 thread")[0] for part in found.parts] == [
        "TransformerEncoderLayer, input [1, 5, 16]", "TransformerEncoderLayer, input [1, 8, 16]",
    ]  # fmt: skip


def test_an_explanation_is_of_the_batch_that_was_called() -> None:
    module = wrapped(nn.Sequential(nn.Linear(8, 8), nn.Tanh()).eval())
    with torch.no_grad():
        for batch in (3, 70):
            module(torch.randn(batch, 8))
    (part,) = bslite.explain(module, runs=2, limits=False).parts
    assert "input [70, 8]" in str(part)


def test_explain_of_an_optimized_module_says_what_runs_where_and_how_long_each_part_takes() -> None:
    halves = Made(
        lambda net, x: net.after(torch.special.erfinv(torch.tanh(net.before(x)) * 0.5)),
        before=nn.Conv2d(3, 8, 3), after=nn.Conv2d(8, 4, 3),
    )  # fmt: skip
    module = wrapped(halves, fallback="silent")
    with pytest.raises(bslite.InputError, match="not specialised yet"):
        bslite.explain(module)
    with torch.no_grad():
        module(torch.randn(2, 3, 12, 12))
    found = bslite.explain(module, runs=2)
    convolutions = [row.name for part in found.parts for row in part.layers if row.op == "conv2d"]
    assert convolutions == ["before", "after"]
    text = str(found)
    assert "erfinv" in text
    assert text.index("of the flops") < text.index("GFLOP/s")
    assert set(found.as_dict()) == {"report", "parts", "training"}
    with pytest.raises(bslite.InputError, match="takes no shape"):
        bslite.explain(module, (1, 3, 12, 12))
