"""Machines in files, the price on a GPU, and ``bslite explore``."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bslite.errors import EngineError, FileError
from bslite.explore import Recurrent, deepbench, gpu, search
from bslite.explore.gpu import GpuMachine
from bslite.explore.machine_file import EXAMPLES, AnyMachine, examples, find_machine, kind_of, parse_machine
from bslite.explore.spatial import SpatialMachine
from bslite.machine import Machine

LSTM = Recurrent("lstm", 1024, 1024, 25, 1)


@pytest.mark.parametrize("name", examples())
def test_examples_are_read_and_written(name: str) -> None:
    machine = find_machine(name)
    assert find_machine(str(EXAMPLES / f"{name}.json")) == machine
    written = machine.to_json()
    assert parse_machine(written) == machine
    assert json.loads(written).get("kind", "cpu") == kind_of(machine)


def test_there_is_an_example_of_every_kind() -> None:
    assert {kind_of(find_machine(name)) for name in examples()} == {"cpu", "gpu", "spatial"}
    assert isinstance(parse_machine("{}"), Machine)
    assert parse_machine('{"kind": "cpu", "threads": 48}') == Machine(threads=48)
    assert parse_machine('{"kind": "gpu"}') == GpuMachine()
    assert parse_machine('{"kind": "spatial", "launch_cycles": 0}') == SpatialMachine(launch_cycles=0)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "a machine is a JSON object"),
        ("{", "a machine is a JSON object"),
        ("[]", "a machine description is a JSON object, got list"),
        ('{"kind": "abacus"}', "kind is 'abacus', expected one of cpu, gpu, spatial"),
        ('{"kind": 3}', "kind is 3"),
        ('{"kind": "spatial", "threads": 2}', "spatial machine description: unknown 'threads'; known: rows"),
        ('{"kind": "spatial", "rows": 0}', "rows must be a positive whole number, got 0"),
        ('{"kind": "spatial", "rows": 2.5}', "rows must be a positive whole number, got 2.5"),
        ('{"kind": "spatial", "clock": "fast"}', "clock must be a positive number, got 'fast'"),
        ('{"kind": "spatial", "clock": Infinity}', "clock must be a positive number, got inf"),
        (
            '{"kind": "spatial", "launch_cycles": -1}',
            "launch_cycles must be no negative whole number, got -1",
        ),
        ('{"kind": "spatial", "lanes": 12}', "lanes must be a power of two, got 12"),
        ('{"kind": "spatial", "banks": 3}', "banks must be a power of two, got 3"),
        ('{"kind": "gpu", "sms": true}', "GPU description: sms must be a positive whole number, got True"),
        ('{"kind": "gpu", "SMs": 4}', "GPU description: unknown 'SMs'"),
        ('{"kind": "cpu", "threads": -4}', "threads must be a positive whole number"),
    ],
)
def test_a_wrong_machine_is_told(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=said):
        parse_machine(text)
    path = tmp_path / "wrong.json"
    path.write_text(text)
    with pytest.raises(EngineError, match=f"wrong.json: .*{said}"):
        find_machine(str(path))


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"none.json: .* \(No such file.*one of: cpu-48-cores"):
        find_machine(str(tmp_path / "none.json"))
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FileError, match="not text"):
        find_machine(str(tmp_path / "bytes.json"))


def seconds(problem: Recurrent, machine: GpuMachine, **values: Any) -> float:
    point = gpu.space(problem, machine).point(
        {"units": 8, "weights": "chip", "steps": "grid", "inputs": "within", **values}
    )
    return gpu.estimate(problem, machine, point).seconds


def test_gpu_parts_add_up_and_bounds_hold() -> None:
    machine = GpuMachine()
    for problem in deepbench.distinct((4,)):
        best = search(gpu, problem, machine).best
        assert best.seconds == pytest.approx(sum(p.seconds for p in best.parts if not p.hidden))
        assert all(p.seconds >= 0 for p in best.parts)
        peak = 2 * machine.sms * machine.lanes * machine.clock
        assert best.seconds > problem.batch * problem.steps * 2 * problem.weights / peak


def test_gpu_weights_stay_on_chip_while_they_fit() -> None:
    assert search(gpu, LSTM, GpuMachine()).best.point["weights"] == "chip"
    large = Recurrent("lstm", 2048, 2048, 25, 1)
    assert search(gpu, large, GpuMachine()).best.point["weights"] == "split"
    more = replace(GpuMachine(), shared_bytes=2 << 20)
    assert search(gpu, large, more).best.point["weights"] == "chip"


def test_gpu_streaming_takes_the_memorys_time() -> None:
    problem = Recurrent("gru", 2816, 2816, 100, 1)
    machine = GpuMachine()
    streamed = {"units": 22, "weights": "streamed", "inputs": "ahead"}
    slow, fast = (
        seconds(problem, replace(machine, memory_bandwidth=b), **streamed) for b in (1.2e12, 2.4e12)
    )
    assert 1.6 < slow / fast < 2.01
    floor = problem.steps * problem.recurrent_weight_bytes / 1.2e12
    assert floor < slow < 1.25 * floor


def test_gpu_barriers_cost_what_they_cost() -> None:
    dear, cheap = (seconds(LSTM, replace(GpuMachine(), grid_sync=s)) for s in (3e-6, 1e-6))
    assert dear - cheap == pytest.approx(LSTM.steps * 2e-6)
    launched = seconds(LSTM, GpuMachine(), weights="streamed", steps="launch")
    assert launched > seconds(LSTM, GpuMachine(), weights="streamed")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"weights": "chip", "steps": "launch"}, "a kernel per step keeps none"),
        ({"units": 1}, "1024 blocks, 132 SMs"),
        ({"units": 100}, "bytes of weights, an SM keeps"),
        ({"weights": "cloud"}, "weights is 'cloud', expected one of chip split streamed"),
    ],
)
def test_gpu_points_that_do_not_fit_are_told(values: dict[str, Any], said: str) -> None:
    with pytest.raises(EngineError, match=said):
        seconds(LSTM, GpuMachine(), **values)


@pytest.fixture
def tiny(tmp_path: Path) -> str:
    machine: AnyMachine = SpatialMachine(rows=4, columns=4)
    path = tmp_path / "tiny.json"
    path.write_text(machine.to_json())
    return str(path)


def test_explore_prints_space_best_points_and_simulation(call: Any, tiny: str, tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    out = call(
        "explore", "lstm", "--hidden", "24", "--inputs", "10", "--steps", "9", "--machine", tiny,
        "--top", "3", "--simulate", "--json", str(figures),
    )  # fmt: skip
    for part in (
        "lstm 24, 10 inputs, 9 steps, batch 1, on", "(spatial)", "hidden units side by side", "predicted",
        "multiply-adds", "h on its way round", "points fit", "break: units fit the grid", "PCUs multiply",
        "latency", "busy: all multipliers, useful", "wait: starting kernels", "few kernels: rows=",
        "3 of 9 steps executed",
    ):  # fmt: skip
        assert part in out
    data = json.loads(figures.read_text())
    assert len(data["ranked"]) == 3
    assert parse_machine(json.dumps(data["machine"])) == find_machine(tiny)
    ways = data["simulated"]
    assert list(ways) == ["loop", "kernels", "few kernels"]
    assert ways["loop"]["point"] == data["ranked"][0]["point"]
    assert ways["loop"]["simulated"]["cycles"] < ways["kernels"]["simulated"]["cycles"]


@pytest.mark.parametrize("machine", [(), ("--machine", "cpu-48-cores")])
def test_explore_a_cpu(call: Any, machine: tuple[str, ...]) -> None:
    out = call("explore", "lstm", "--hidden", "512", *machine)
    assert ("cpu-48-cores (cpu)" if machine else "on this CPU") in out
    assert "points fit" in out


def test_explore_a_gpu(call: Any) -> None:
    out = call("explore", "gru", "--hidden", "512", "--layers", "2", "--machine", "h200")
    assert "h200 (gpu)" in out
    assert "hand-over" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("explore", "elman"), "'elman' is not one of 'lstm', 'gru', 'rnn'"),
        (("explore", "lstm", "--hidden", "0", "--machine", "h200"), "Invalid value for '--hidden'"),
        (("explore", "lstm", "--machine", "nothing.json"), "nothing.json: cannot read a machine"),
        (("explore", "lstm", "--machine", "h200", "--simulate"), "--simulate takes a spatial machine"),
        (("explore", "rnn", "--machine", "h200", "--json", "/nowhere/x.json"), "cannot write"),
    ],
)
def test_explore_tells_mistakes(call: Any, arguments: tuple[str, ...], said: str) -> None:
    assert said in call(*arguments, code=2)
