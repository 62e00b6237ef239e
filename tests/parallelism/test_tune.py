"""`tune` on small models: what it measures and says, what it refuses; settings measured on this machine."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.graphs import Graph

from bslite.engines.cpu.threads import available_cores
from bslite.errors import EngineError, InputError
from bslite.machine import Machine
from bslite.parallelism import api, tune
from bslite.parallelism import measure as measuring
from bslite.parallelism.host import Host, host_described
from bslite.parallelism.measure import DifferentAnswers, measure
from bslite.parallelism.setting import Setting
from bslite.parallelism.work import inputs_of, work_of
from bslite.spec import ModelSpec

HERE = Host(2, 1 << 25, 1e10, 2e10, 1.0, True)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short blocks, and a machine that is not measured."""
    monkeypatch.setattr(measuring, "LEAST", 2)
    monkeypatch.setattr(api, "host_here", lambda cores: Host(cores, 1 << 25, 1e10, 2e10, 1.0, True))
    from bslite.parallelism import replay

    monkeypatch.setattr(replay, "_compiled", lambda: replay._replay)


def two_wide(batch: int | str = "N") -> ModelSpec:
    """Two products side by side, and one on what they make together."""
    g, rng = Graph("two_wide"), np.random.default_rng(0)
    x = g.input("x", (batch, 32))
    a, b = (g("linear", n, x, weight=rng.standard_normal((48, 32), np.float32)) for n in "ab")
    return g.build(g("linear", "c", g("mul", "both", a, b), weight=rng.standard_normal((8, 48), np.float32)))


def test_one_thread_times_are_of_every_item() -> None:
    spec, inputs = inputs_of(two_wide(), 4)
    work = work_of(spec, inputs, Machine(threads=3), runs=2)
    assert work.batch == 4
    assert len(work.seconds) == work.first[-1] > 0
    assert (work.seconds > 0).all()
    assert (work.after <= np.arange(len(work.after))).all()
    assert work.parameters == 4 * (2 * 48 * 32 + 8 * 48)
    items = np.diff(work.first)
    assert (work.weights * items).sum() == pytest.approx(work.parameters)
    assert work.total == pytest.approx(work.call + work.seconds.sum() + work.gap * len(work.seconds))


def test_latency_is_measured_where_the_cores_are() -> None:
    said: list[str] = []
    advice = tune(two_wide(), cores=1, progress=said.append)
    assert advice.choice == Setting(1, 1, 1)
    assert advice.measured
    assert any("measuring" in line for line in said)
    assert "model = bslite.compile(model, threads=1, streams=1)" in str(advice)
    assert "average width 1.50: 3 heavy operators, 2 of them" in str(advice)


def test_throughput_of_cores_that_are_not_here_is_simulated() -> None:
    advice = tune(two_wide(), "throughput", cores=256, batches=(1, 2))
    assert not advice.measured
    assert all(row.simulated is not None for row in advice.rows)
    assert {name for row in advice.rows for name in row.rules} == {"width", "intel", "tensorflow", "openvino"}
    assert advice.choice.used <= 256
    data = json.loads(json.dumps(advice.as_dict()))
    assert data["choice"] == {
        "batch": advice.choice.batch,
        "streams": advice.choice.streams,
        "threads": advice.choice.threads,
    }
    assert data["host"]["here"] is False
    assert "256 core(s) that are not here" in str(advice)


def test_a_model_of_one_batch_gets_no_other() -> None:
    advice = tune(two_wide(3), "throughput", cores=1)
    assert {row.setting.batch for row in advice.rows} == {3}
    with pytest.raises(InputError, match=r"no batch of 2|expected \[3, 32\]"):
        tune(two_wide(3), "throughput", cores=1, batches=(2,))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"target": "speed"}, EngineError, "target 'speed' is not one of 'latency', 'throughput'"),
        ({"cores": 0}, EngineError, "cores must be a whole number from 1 to 1024, got 0"),
        ({"cores": 2.5}, EngineError, "got 2.5"),
        ({"cores": True}, EngineError, "got True"),
        ({"cores": 4096}, EngineError, "got 4096"),
        (
            {"cores": 1024, "measure": True},
            EngineError,
            "1024 cores cannot be measured: this process may use",
        ),
        ({"batches": ()}, InputError, "batches must be positive whole numbers"),
        ({"batches": (0,)}, InputError, "batches must be positive whole numbers"),
    ],
)
def test_what_cannot_be_asked(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        tune(two_wide(), **options)


def test_what_is_no_model() -> None:
    with pytest.raises(InputError, match="tune\\(\\) takes a ModelSpec"):
        tune("resnet50")


def test_streams_and_batches_are_measured() -> None:
    spec = two_wide()
    cases = {b: inputs_of(spec, b) for b in (1, 2)}
    settings = [Setting(1, 1, 1), Setting(2, 2, 1), Setting(2, 1, min(2, available_cores()))]
    blocks: list[int] = []
    found = measure(cases, settings, seconds=0.01, rounds=2, done=lambda: blocks.append(1))
    assert list(found) == settings
    assert len(blocks) == 6
    for setting, figures in found.items():
        assert len(figures.rates) == 2
        assert figures.rate > 0
        # Requests of a stream follow one another, so its rate and the seconds of one agree.
        assert figures.rate * figures.seconds / setting.batch / setting.streams < 3


def test_other_bits_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from bslite import compiled

    right = compiled.compile

    class Wrong:
        def __init__(self, spec: ModelSpec, threads: int, streams: int) -> None:
            self.model, self.threads = right(spec, threads=threads), threads

        def __call__(self, *inputs: Any) -> Any:
            made = self.model(*inputs)
            if self.threads == 2:
                made = type(made)((n, np.nextafter(y, np.float32(9))) for n, y in made.items())
            return made

    monkeypatch.setattr(compiled, "compile", Wrong)
    cases = {1: inputs_of(two_wide(), 1)}
    measure(cases, [Setting(1, 1, 1)], seconds=0.001, rounds=1)
    with pytest.raises(DifferentAnswers, match="batch 1, 1 x 2 makes other bits"):
        measure(cases, [Setting(1, 1, 1), Setting(1, 1, 2)], seconds=0.001, rounds=1)


def test_a_call_that_fails_ends_all_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing() -> None:
        raise ZeroDivisionError("planted")

    with pytest.raises(ZeroDivisionError, match="planted"):
        measuring._block(failing, 3, 0.01)


def test_a_described_socket_gives_few_cores_what_they_can_take() -> None:
    socket = Machine(threads=48, memory_bytes_per_cycle=2.5, l3=100 << 20)
    one, all_ = host_described(1, socket, 2e9), host_described(48, socket, 2e9)
    assert one.memory == one.alone == 2 * 2.5 * 2e9
    assert all_.memory == 48 * 2.5 * 2e9
    assert all_.l3 == 100 << 20


def test_the_command(call: Any, tmp_path: Path) -> None:
    file, json_file = tmp_path / "m.safetensors", tmp_path / "advice.json"
    two_wide().save(file)
    out = call(
        "tune",
        str(file),
        "--target",
        "throughput",
        "--cores",
        "300",
        "--batch",
        "1",
        "--json",
        str(json_file),
    )
    assert "two_wide: throughput on 300 core(s) that are not here" in out
    assert "choice: batch 1, " in out
    assert json.loads(json_file.read_text())["cores"] == 300
    assert "Usage: bslite tune" in call("tune", "--help")
