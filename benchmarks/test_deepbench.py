"""DeepBench's layers: all rivals give one answer, faults are found, what is measured is written and drawn."""

import importlib.util
import json
import time
import types
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("onnx")
pytest.importorskip("matplotlib")

import bslite
from benchmarks import roofline
from benchmarks.deepbench import __main__ as command
from benchmarks.deepbench import layer as layers
from benchmarks.deepbench import measure, points, space, sync
from benchmarks.deepbench.engines import ENGINES, Traced
from benchmarks.deepbench.layer import Case, Layer
from benchmarks.deepbench.points import Point, chosen, cut_points
from benchmarks.peers.measure import in_turns
from benchmarks.plot import draw
from bslite.cli import timing
from bslite.cli.timing import interleaved
from bslite.engines.cpu.detect import detect
from bslite.explore import Estimate, Part
from bslite.explore import Point as Chosen

POINTS = [Point("lstm", 20, 3, (3,)), Point("gru", 33, 4, (7, 9)), Point("gru", 16, 1, (1,))]
HERE = [e for e in ENGINES if e in ("bslite", "torch") or importlib.util.find_spec(e)]


@pytest.fixture
def tiny(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three small layers in the place of the list, and nothing read or waited for long."""
    monkeypatch.setattr(points, "cut_points", lambda cap: POINTS)
    monkeypatch.setattr(roofline, "fma_rate", lambda threads: 1e11)
    monkeypatch.setattr(measure, "READ", 1e4)
    monkeypatch.setattr(measure, "TURN", 1e-3)
    right = sync.measure
    monkeypatch.setattr(sync, "measure", lambda rounds: right(2, 2000))


def drawn(path: Path) -> None:
    """It is a picture with some marks in it."""
    root = ElementTree.parse(path).getroot()
    assert len(root.findall(".//{http://www.w3.org/2000/svg}path")) > 10


def test_the_list_is_cut_and_says_so() -> None:
    whole = cut_points(10_000)
    assert len(whole) == 23
    assert not any(p.cut for p in whole)
    cut = {p.name: p for p in cut_points(50)}
    assert len(cut) == len(cut_points(50)) == 11
    assert cut["gru 2816"].steps == 50
    assert sorted(cut["gru 2816"].lengths) == [187, 375, 750, 1500]
    assert cut["lstm 256"].steps == 150  # small enough in full
    assert (cut["lstm 512"].weight_bytes, cut["lstm 512"].streamed) == (4 << 20, 4 << 20)
    assert (cut["gru 512"].weight_bytes, cut["gru 512"].streamed) == (3 << 20, 6 << 20)
    assert chosen(["lstm 512"], list(cut.values())) == [cut["lstm 512"]]
    with pytest.raises(ValueError, match="no such layer: lstm 3; there are lstm 512"):
        chosen(["lstm 3"], list(cut.values()))


@pytest.mark.parametrize("point", POINTS, ids=lambda p: p.name)
@pytest.mark.parametrize("engine", HERE)
def test_rivals_give_the_reference_answer(engine: str, point: Point, tmp_path: Path) -> None:
    layer = Layer(point, 4)
    for batch in (1, 4):
        case = Case(layer, batch, tmp_path)
        rival = ENGINES[engine](case, 2)
        answer = rival.answer(rival())
        assert answer.shape == (point.steps, batch, point.hidden)
        assert case.error(answer) <= case.bound < 1e-5


@pytest.mark.parametrize("point", POINTS[:2], ids=lambda p: p.name)
def test_gates_of_the_onnx_file_are_in_its_order(
    point: Point, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file as bslite reads it, which knows ONNX's order on its own; another order is another answer."""

    def error(folder: Path) -> float:
        folder.mkdir()
        case = Case(Layer(point, 2), 2, folder)
        return case.error(bslite.run(bslite.from_onnx(case.onnx), case.x))

    assert error(tmp_path / "right") < 1e-6
    usual = layers.ONNX_GATES[point.cell]
    swapped = (usual[1], usual[0], *usual[2:])
    monkeypatch.setitem(layers.ONNX_GATES, point.cell, swapped)
    assert error(tmp_path / "wrong") > 1e-3


def test_runs(tiny: None, tmp_path: Path, written: Any) -> None:
    picture = tmp_path / "found.svg"
    options = ["--quick", "--batch", "1", "3", "--peers", *HERE]
    found, text = written(command.main, *options, "--plot", str(picture))
    assert found["benchmark"] == "deepbench"
    assert found["sync"]["threads"] == 2
    assert [(r["net"], r["batch"]) for r in found["results"]] == [
        (p.name, batch) for p in POINTS for batch in (1, 3)
    ]
    for result in found["results"]:
        assert not result["failures"]
        assert set(result["seconds"]) == set(result["rounds"]) == set(HERE)
        assert all(len(r) == 2 for r in result["rounds"].values())
        assert result["recurrent"] > 0
        assert set(result["stream"]) == {"forwards", "alternating"}
        for direction, rate in result["stream"].items():
            once = result["weight_bytes"] / rate
            assert result["floors"][direction] >= (result["steps"] + 1) * once * (1 - 1e-9)
            share = result["floors"][direction] / result["seconds"]["bslite"]
            assert result["shares"][direction] == pytest.approx(share)
            assert result["recurrent_shares"][direction] == pytest.approx(
                (2 if result["steps"] == 1 else result["steps"]) * once / result["recurrent"]
            )
    ratios = [r["ratio"] for r in found["results"]]
    assert found["summary"]["worst"]["ratio"] == min(ratios)
    assert found["summary"]["mean"] == pytest.approx(np.exp(np.mean(np.log(ratios))))
    entries = np.repeat(ratios, [len(r["lengths"]) for r in found["results"]])
    assert found["summary"]["mean_of_entries"] == pytest.approx(np.exp(np.mean(np.log(entries))))
    assert "| gru 33 | 4, cut from 7, 9 | " in text
    assert "Synchronisation: two threads wait for each other in **" in text
    drawn(picture)


def test_a_wrong_answer_is_reported_and_not_timed(
    tiny: None, tmp_path: Path, written: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = ENGINES["bslite"].answer
    monkeypatch.setattr(ENGINES["bslite"], "answer", lambda self, y: 1.01 * right(self, y))
    options = ["--quick", "--batch", "1", "--peers", "bslite", "torch"]
    found, text = written(command.main, *options, code=1)
    for result in found["results"]:
        assert "wrong answer" in result["failures"]["bslite"]
        assert set(result["seconds"]) == {"torch"}
        assert result["ratio"] is result["recurrent"] is result["shares"]["forwards"] is None
    assert "lstm 20, batch 1, bslite: wrong answer" in text
    draw(found, tmp_path / "found.svg")


def test_writes_after_each_case(tiny: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = command.compare

    def stopped(layer: Layer, batch: int, *rest: Any) -> measure.Found:
        if batch == 2:
            raise KeyboardInterrupt
        return right(layer, batch, *rest)

    monkeypatch.setattr(command, "compare", stopped)
    options = ["--quick", "--peers", "bslite", "--threads", "1", "--json", str(tmp_path / "found.json")]
    with pytest.raises(KeyboardInterrupt):
        command.main(options)
    (result,) = json.loads((tmp_path / "found.json").read_text())["results"]
    assert (result["net"], result["batch"], result["ratio"]) == ("lstm 20", 1, None)


def test_a_layer_that_is_not_in_the_list_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for main in (command.main, space.main):
        with pytest.raises(SystemExit):
            main(["--layers", "lstm 512", "gru 7"])
        assert "no such layer: gru 7; there are lstm 512," in capsys.readouterr().err


def test_the_time_steps_are_traced() -> None:
    """Their span is most of a run of many steps, and grows with them."""
    spans = []
    for steps in (50, 500):
        spec, x = sync.small_layer(steps)
        traced = Traced(spec, x, 1)
        start = time.perf_counter()
        for _ in range(2 * (1 + 3)):
            traced()
        each = (time.perf_counter() - start) / 8
        spans.append(traced.seconds(2, 3))
        assert 0 < spans[-1] < 2 * each
    assert 3 < spans[1] / spans[0] < 30


def test_synchronisation_is_what_two_threads_take_beyond_half() -> None:
    found = sync.measure(2, 2000)
    assert found.threads == 2
    assert found.cost == found.two - found.one / 2
    assert 0 < found.one < 1e-4
    assert 0 < found.meeting < 1e-3


def test_turns_change_their_order(quick: None) -> None:
    order: list[str] = []
    interleaved({name: lambda: None for name in "abc"}, 4, 1, on_turn=order.append, turned=True)
    assert "".join(order) == "abc" + "acb" + "cab" + "cba"
    order.clear()
    interleaved({name: lambda: None for name in "ab"}, 2, 1, on_turn=order.append)
    assert "".join(order) == "abab"


def test_a_rival_that_fails_on_the_way_is_struck_off(quick: None) -> None:
    failures: dict[str, str] = {}
    calls = [1, 2, 3]
    found = in_turns({"well": lambda: None, "ill": calls.pop}, failures, 5, per_turn=1)
    assert list(found) == ["well"]
    assert len(found["well"]) == 5
    assert failures["ill"].startswith("failed while timed: IndexError")


@pytest.mark.parametrize(
    ("seconds", "calls"), [((1e-5, 1e-5), 25), ((2e-3, 4e-3), 20), ((2e-3, 0.05), 4), ((0.5, 0.6), 1)]
)
def test_short_calls_are_many(
    seconds: tuple[float, ...], calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr(timing, "time", types.SimpleNamespace(perf_counter=lambda: now))

    def taking(s: float) -> Any:
        def call() -> None:
            nonlocal now
            now += s

        return call

    found = measure.calls_of_a_turn({str(i): taking(s) for i, s in enumerate(seconds)})
    assert abs(found - calls) <= 1  # seconds are rounded


def test_ranks() -> None:
    assert space.ranks([3.0, 1.0, 2.0, 2.0]).tolist() == [3, 0, 1.5, 1.5]
    assert space.spearman([1, 2, 3, 4], [10, 20, 30, 1000]) == pytest.approx(1)
    assert space.spearman([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1)
    # By hand: 1 - 6 * (1 + 1 + 0 + 0) / (4 * 15).
    assert space.spearman([1, 2, 3, 4], [2, 1, 3, 4]) == pytest.approx(0.8)
    assert space.spearman([1, 1], [1, 2]) is None
    assert space.spearman([1], [1]) is None


def test_candidates_are_the_search_s_and_plans_are_made_with_them() -> None:
    machine = detect(2)
    found = space.candidates(POINTS[0].problem(1), machine)
    assert [e.seconds for e in found] == sorted(e.seconds for e in found)
    assert len({str(e.point) for e in found}) == len(found) > 3
    layer = Layer(POINTS[0], 2)
    for point in (found[0].point, found[-1].point):
        session = space.session_with(layer.spec, layer.x.shape, machine, point)
        (step,) = (s for s in session.plan.steps if s.kernel == "recurrent")
        record = step.record
        assert (record.units, record.tile_units) == (point["units"], point["tile"])
        out = np.empty(layer.x.shape, np.float32)
        session.run([layer.x], [out])
        assert out.tobytes() == bslite.run(layer.spec, layer.x).tobytes()


class StandIn:
    """A space of three points that all do the same, one of them late, one of them wrong if asked to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, wrong: str = "") -> None:
        self.wrong, self.right = wrong, (space.candidates, space.session_with)
        monkeypatch.setattr(space, "candidates", self.candidates)
        monkeypatch.setattr(space, "session_with", self.session_with)

    def candidates(self, problem: Any, machine: Any) -> list[Estimate]:
        self.pick = self.right[0](problem, machine)[0].point
        return [Estimate(Chosen((("units", i),)), (Part("all", (1 + i) * 1e-3),)) for i in range(3)]

    def session_with(self, spec: Any, shape: Any, machine: Any, point: Chosen) -> Any:
        name, session = "abc"[point.number("units")], self.right[1](spec, shape, machine, self.pick)
        run = session.run

        def slow(inputs: Any, outputs: Any) -> None:
            if name == "a":
                time.sleep(2e-3)
            if name == "b":
                time.sleep(20e-3)
            run(inputs, outputs)
            if name == self.wrong:
                outputs[0][0] = 7

        session.run = slow  # type: ignore[method-assign]
        return session


def test_space(tiny: None, tmp_path: Path, written: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    StandIn(monkeypatch)
    found, text = written(space.main, "--quick", "--rounds", "3")
    assert [r["net"] for r in found["results"]] == [p.name for p in POINTS]
    for result in found["results"]:
        a, b, c = (p["measured"] for p in result["points"])
        assert c < a < b
        assert result["best"] == 2
        assert result["gap"] > 1.5  # a waits 2 ms where c runs some tens of microseconds
        assert result["correlation"] == pytest.approx(-0.5)
        assert f"| {result['net']} | units=0 | units=2 | 1 | " in text
    assert len(found["summary"]["far"]) == 3
    draw(found, tmp_path / "found.svg")
    drawn(tmp_path / "found.svg")


@pytest.mark.parametrize(("wrong", "gap"), [("b", True), ("a", False)])
def test_a_point_of_the_space_with_a_wrong_answer(
    wrong: str, gap: bool, tiny: None, tmp_path: Path, written: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    StandIn(monkeypatch, wrong)
    found, text = written(space.main, "--quick", "--layers", "lstm 20", code=1)
    (result,) = found["results"]
    number = "abc".index(wrong)
    assert "wrong answer" in result["failures"][f"units={number}"]
    assert [p["measured"] is None for p in result["points"]] == [n == number for n in range(3)]
    assert (result["gap"] is not None) == gap  # none without the pick
    assert f"lstm 20, batch 1, units={number}: wrong answer" in text
    draw(found, tmp_path / "found.svg")


@pytest.mark.benchmark(group="recurrent, ten steps")
@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("point", cut_points(10), ids=lambda p: p.name)
def test_layer(benchmark: Any, point: Point, batch: int) -> None:
    """The engine alone, and the rate at which it goes through the recurrent weights."""
    layer = Layer(point, batch)
    bslite.run(layer.spec, layer.x)
    benchmark(bslite.run, layer.spec, layer.x)
    if benchmark.stats is not None:  # None where benchmarks are disabled
        seconds = benchmark.stats.stats.median
        benchmark.extra_info["gbytes"] = round(point.steps * point.weight_bytes / seconds / 1e9, 1)
