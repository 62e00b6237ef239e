"""`explain` for the GPU engine: its plan in rows that add up, on a machine that is named; nothing runs."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bslite
from bslite.engines.cuda import devices
from bslite.engines.cuda.simulated import SimulatedDriver
from bslite.errors import EngineError, InputError
from bslite.explanation.gpu import GpuExplanation, explain_on_gpu
from bslite.explore.gpu import GpuMachine
from bslite.frontends.weights.architectures.random_weights import random_state_dict
from bslite.frontends.weights.state_dict import from_state_dict
from bslite.passes import simplify_for_gpu
from bslite.plan.cuda import build_plan
from bslite.spec import GraphBuilder, ModelSpec
from bslite.spec.table import layer_rows

#: Network -> batch: residuals and stacks; concats in place and sums in parts; squeeze-and-excitation.
CASES = {"mobilenet_v2": 16, "densenet121": 1, "efficientnet_b0": 2}


@pytest.fixture(scope="module", params=CASES)
def found(request: pytest.FixtureRequest) -> tuple[ModelSpec, GpuExplanation]:
    spec = from_state_dict(request.param, random_state_dict(request.param), image_size=64)
    shape = (CASES[request.param], 3, 64, 64)
    return spec, bslite.explain(spec, shape, backend="cuda", machine=GpuMachine())


def test_rows_are_the_launches_of_the_plan(found: Any) -> None:
    spec, e = found
    plan = build_plan(simplify_for_gpu(spec), e.shapes, GpuMachine())
    assert [r.kernel for r in e.launches] == [s.kernel for s in plan.steps]
    assert [r.grid for r in e.launches] == [s.grid for s in plan.steps]
    assert e.memory["arena"] == 4 * plan.arena_size
    assert all(r.bytes > 0 and r.bound for r in e.launches)


def test_work_is_that_of_the_simplified_model(found: Any) -> None:
    spec, e = found
    expected = sum(row.flops for row in layer_rows(simplify_for_gpu(spec), e.shapes))
    assert sum(r.flops for r in e.launches) == expected
    assert sum(r.flops for r in e.rows if r.stack is None or r.inside) == expected


def test_every_node_of_the_user_is_in_one_layer(found: Any) -> None:
    spec, e = found
    rows = [r for r in e.rows if r.stack is None or r.inside]
    assert sorted(n for r in rows for n in r.nodes) == sorted(n.name for n in spec.nodes)


def test_prices_add_up(found: Any) -> None:
    _, e = found
    assert e.seconds == pytest.approx(sum(r.seconds for r in e.launches))
    assert all(r.seconds >= e.machine.launch for r in e.launches)
    assert all(not r.seconds for r in e.rows if not r.kernel)


def test_table_and_data(found: Any) -> None:
    _, e = found
    text = str(e)
    assert f"{len(e.launches)} launches" in text
    assert "planned for a machine as described: 132 SMs" in text
    assert "or conv2d" in text
    assert all(r.name[:20] in text for r in e.rows)
    data = json.loads(json.dumps(e.as_dict()))
    assert (len(data["rows"]), data["machine"]["sms"]) == (len(e.rows), 132)


def pools(depth: int, size: int = 32) -> ModelSpec:
    """Pooling and ReLU, ``depth`` times; then a view."""
    g = GraphBuilder("pools")
    x = g.input("x", ("N", 8, size, size), (1, 8, size, size))
    for i in range(depth):
        x = g.add("max_pool2d", f"pool{i}", x, kernel=(3, 3), stride=(1, 1), padding=1)
        x = g.add("relu", f"relu{i}", x)
    return g.build(g.add("flatten", "flat", x, start_axis=1, end_axis=-1))


def test_a_stack_and_what_is_inside() -> None:
    e = bslite.explain(pools(3), (16, 8, 32, 32), backend="cuda", machine=GpuMachine())
    (whole,) = (r for r in e.rows if r.op == "stack")
    inside = [r for r in e.rows if r.inside]
    assert [r.name for r in inside] == ["pool0", "pool1", "pool2"]
    assert whole.flops == sum(r.flops for r in inside)
    image = 4 * 16 * 8 * 32 * 32
    assert 2 * image <= whole.bytes < 2 * image + 1000  # nothing between them, but a table of sizes
    assert whole.tile in {f"{turn}x{columns}" for turn in (1, 2) for columns in (1, 2, 4, 8, 14)}
    before = e.rows[e.rows.index(whole) - 1]
    assert (before.kernel, before.holds) == ("transpose", ("part of pool0 to pool2",))
    assert e.rows[-1].name == "outputs"


def test_a_launch_of_many_steps_waits_for_each() -> None:
    g = GraphBuilder("rnn")
    rng = np.random.default_rng(0)
    shapes = {"weight_ih": (64, 8), "weight_hh": (64, 16)}
    g.params = {role: rng.standard_normal(shape).astype(np.float32) for role, shape in shapes.items()}
    x = g.input("x", ("T", 1, 8), (5, 1, 8))
    spec = g.build(g.add("lstm", "y", x, params={role: role for role in shapes}))
    seconds = [
        max(r.seconds for r in explain_on_gpu(spec, [(steps, 1, 8)], machine=GpuMachine()).launches)
        for steps in (10, 100)
    ]
    assert seconds[1] > 5 * seconds[0]


def test_which_machine_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = pools(1)
    here = bslite.explain(spec, backend="cuda")
    assert (here.device, here.machine) == (SimulatedDriver.name, SimulatedDriver.machine)

    def none(device: int = 0) -> Any:
        raise EngineError("backend 'cuda': there is no CUDA device here (none)")

    monkeypatch.setattr(devices, "driver_for", none)
    assumed = bslite.explain(spec, backend="cuda", batch=3)
    assert "no GPU here" in str(assumed)
    assert (assumed.machine, assumed.shapes[0][0]) == (GpuMachine(), 3)


def test_arrays_lie_as_they_lie() -> None:
    spec, x = pools(1), np.zeros((2, 32, 32, 8), np.float32).transpose(0, 3, 1, 2)
    kernels = [
        [r.kernel for r in bslite.explain(spec, given, backend="cuda", machine=GpuMachine()).launches]
        for given in (x, np.ascontiguousarray(x))
    ]
    assert len(kernels[0]) < len(kernels[1])  # channels last already: no copy


def test_measured_libraries_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Known:
        def seconds(self, steps: Any) -> list[float]:
            return [5e-6, 3e-6]

    monkeypatch.setattr(SimulatedDriver, "library", Known(), raising=False)
    spec = from_state_dict("squeezenet1_1", random_state_dict("squeezenet1_1"), image_size=64)
    assert "conv2d 3.0 µs, ours 5.0 µs" in str(bslite.explain(spec, backend="cuda"))


def test_what_cannot_be_asked() -> None:
    spec, any_machine = pools(1), GpuMachine()
    with pytest.raises(EngineError, match="'gpu' is not one of 'cpu', 'cuda'"):
        bslite.explain(spec, backend="gpu")
    with pytest.raises(InputError, match="machine goes with backend='cuda'"):
        bslite.explain(spec, machine=any_machine)
    with pytest.raises(InputError, match="expected a GpuMachine"):
        bslite.explain(spec, backend="cuda", machine="h200")
    with pytest.raises(InputError, match="none of them empty"):
        bslite.explain(spec, (0, 8, 32, 32), backend="cuda")


def test_a_module_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    from bslite.dropin.diagnosis import explaining

    model = bslite.optimize(torch.nn.Linear(4, 3).eval(), (torch.ones(2, 4),), tune=False)
    assert bslite.report(model).device == "cpu"
    monkeypatch.setattr(explaining.place, "of", lambda tensor: torch.device("cuda", 0))
    assert "optimized by bslite on cuda:0" in str(bslite.report(model))
    found = bslite.explain(model)
    (part,) = found.parts
    assert isinstance(part, GpuExplanation)
    assert "launches" in str(found)
    assert json.dumps(found.as_dict())


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("typer")
    from bslite import cli

    model, figures = tmp_path / "m.safetensors", tmp_path / "plan.json"
    pools(2, 4).save(model)

    def call(*arguments: str) -> tuple[Any, str]:
        with pytest.raises(SystemExit) as stop:
            cli.main(arguments)
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return stop.value.code, " ".join((out + err).split())

    common = ("explain", str(model), "--backend", "cuda")
    code, said = call(*common, "--machine", "h200", "--batch", "4", "--json", str(figures))
    assert code == 0, said
    assert "planned for a machine as described: 132 SMs" in said
    assert json.loads(figures.read_text())["shapes"][0][0] == 4
    wrong = {
        "--machine goes with": ("explain", str(model), "--machine", "h200"),
        "takes a GPU": (*common, "--machine", "cpu-48-cores"),
        "runs on the CPU": (*common, "--trace", "t.json"),
    }
    for text, arguments in wrong.items():
        code, said = call(*arguments)
        assert code != 0
        assert text in said
    code, said = call("verify", str(model), "--backend", "cuda", "--quiet", "--no-torch")
    assert code == 0, said
    assert "on cuda, 0 out of bound" in said
    code, said = call("run", str(model), "--backend", "cuda")
    assert code == 0, said
