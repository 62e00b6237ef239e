"""Explanations: numbers that must add up, reasons for everything, and files that others can open."""

import dataclasses
import itertools
import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.dots import dots
from support.graphs import Graph, network, one_op
from support.networks import networks

import bslite
from bslite.explanation import Limits
from bslite.explanation.data.profile import Items, _parts
from bslite.passes import simplify
from bslite.spec.table import layer_rows

__all__ = ["dots"]

LIMITS = Limits(1, 3e9, 1e11, {"l2": 1e11, "l3": 5e10, "memory": 1e10}, {"l2": 1 << 20, "l3": 1 << 25})
#: Network -> batch and threads: plain, with concats in place, with stacks, with what cannot be folded.
CASES = {"mobilenet_v2": (1, 2), "squeezenet1_1": (4, 2), "resnet18": (2, 1), "densenet121": (1, 1)}


@pytest.fixture(scope="module", params=networks(CASES))
def found(request: pytest.FixtureRequest) -> tuple[bslite.ModelSpec, bslite.Explanation]:
    batch, threads = CASES[request.param]
    spec = network(request.param, 1000, 64)
    shape = (batch, 3, 64, 64)
    return spec, bslite.explain(spec, shape, threads=threads, runs=3, limits=LIMITS)


def test_only_the_rows_of_a_table_that_are_picked_count_as_moved() -> None:
    """And the rows of a slice; a constant is there."""
    g = Graph()
    table = g("constant", "table", value=np.ones((30000, 64), np.float32))
    picked = g("gather", "picked", table, g.input("i", ("N", 6), (2, 6), dtype="int64"))
    e = bslite.explain(
        g.build(g("tanh", "y", g("slice", "cut", picked, axis=1, stop=2))), runs=2, limits=LIMITS
    )
    moved = {row.name: row.bytes + row.weights for row in e.layers}
    assert moved["table"] == 0
    assert moved["picked"] == 4 * (2 * 12 * 64 + 12)
    assert sum(moved.values()) <= moved["picked"] + 4 * 2 * 2 * 2 * 64


def test_work_is_that_of_the_simplified_model(found: Any) -> None:
    spec, e = found
    expected = sum(row.flops for row in layer_rows(simplify(spec), e.shapes))
    assert sum(r.flops for r in e.layers) == expected
    assert sum(r.flops for r in e.timed) == expected
    used = {key for node in simplify(spec).nodes for key in node.params.values()}
    assert sum(r.weights for r in e.layers) == 4 * sum(simplify(spec).params[key].size for key in used)


def test_time_adds_up(found: Any) -> None:
    _, e = found
    for rows in (e.timed, e.layers):
        assert sum(r.share for r in rows) == pytest.approx(1, abs=1e-6)
    for r in e.rows:
        assert r.seconds == pytest.approx(r.busy + r.wait)
    walkers = e.profile.walkers()
    length = float(e.profile.items.stop.max())
    assert len(walkers) == e.profile.threads
    assert all(busy + idle == pytest.approx(length) for busy, idle in walkers)
    for number in {r.stack for r in e.rows} - {None}:
        whole = next(r for r in e.rows if r.stack == number and not r.inside)
        assert sum(r.seconds for r in e.rows if r.stack == number and r.inside) == pytest.approx(
            whole.seconds
        )


def test_every_node_of_the_user_is_in_one_layer(found: Any) -> None:
    spec, e = found
    assert sorted(n for r in e.layers for n in r.nodes) == sorted(n.name for n in spec.nodes)


def test_every_layer_has_its_reason(found: Any) -> None:
    spec, e = found
    assert all(r.apart for r in e.layers if r.nodes)
    names = {n.name for n in spec.nodes}
    assert all(r.name in names for r in e.layers if r.nodes)
    folded = {n for n in names if any(f"batch norm {n} folded" in held for r in e.rows for held in r.holds)}
    left = {n.name for n in simplify(spec).nodes if n.op == "batch_norm"}
    assert folded | left == {n.name for n in spec.nodes if n.op == "batch_norm"}
    why = re.compile("not folded: (it normalises|.* before it is read by .* layers)")  # in transitions
    assert all(why.search(r.apart) for r in e.layers if r.op == "batch_norm")


def test_table_and_data(found: Any) -> None:
    _, e = found
    text = str(e)
    assert all(r.name[:20] in text for r in e.rows)
    data = json.loads(json.dumps(e.as_dict()))
    assert len(data["rows"]) == len(e.rows)
    assert data["limits"]["bandwidth"]["memory"] == 1e10
    assert e.floor > 0


def test_a_run_faster_than_its_floor_says_so() -> None:
    spec = network("squeezenet1_1", 1000, 64)
    slow, fast = (
        bslite.explain(spec, runs=1, limits=dataclasses.replace(LIMITS, flops=f)) for f in (1e6, 1e15)
    )
    assert "faster than its floor" in str(slow)
    assert "faster than its floor" not in str(fast)


def test_trace(found: Any, tmp_path: Path) -> None:
    _, e = found
    e.save_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    slices = [event for event in events if event["ph"] == "X"]
    assert len(slices) == len(e.profile.items.step)
    assert {s["name"] for s in slices} == {r.name for r in e.timed if r.steps}
    for track in {s["tid"] for s in slices}:
        mine = sorted((s["ts"], s["ts"] + s["dur"]) for s in slices if s["tid"] == track)
        assert all(start >= stop for (_, stop), (start, _) in itertools.pairwise(mine))
    assert all({"layer", "kernel"} <= set(s["args"]) for s in slices)
    assert any("GFLOP/s" in s["args"] for s in slices)


def test_memory(found: Any) -> None:
    spec, e = found
    assert e.memory.totals["weights"] == 4 * sum(p.size for p in simplify(spec).params.values())
    assert e.memory.totals["input"] == 4 * int(np.prod(e.shapes[0]))
    assert max(e.memory.live) <= e.memory.totals["arena"]
    assert list(e.memory.starts) == sorted(e.memory.starts)


@pytest.mark.usefixtures("dots")
def test_weights_rounded_to_bfloat16_are_half_the_bytes() -> None:
    def made() -> Any:
        return one_op("linear", (64, 96), weight=np.ones((64, 96), np.float32))

    with bslite.precision("bfloat16"):
        narrow = bslite.explain(made(), limits=False)
    wide = bslite.explain(made(), limits=False)
    assert [sum(r.weights for r in found.rows) for found in (narrow, wide)] == [2 * 64 * 96, 4 * 64 * 96]
    assert [found.memory.totals["weights"] for found in (narrow, wide)] == [2 * 64 * 96, 4 * 64 * 96]


def test_html_is_one_file(found: Any, tmp_path: Path) -> None:
    pytest.importorskip("plotly")
    _, e = found
    e.save_html(tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    outside = r"<(?:script|link|img|iframe|source)\b[^>]*\b(?:src|href)\s*=|@import\s+(?:url|['\"]http)"
    ours = text[: text.index("<script>")] + text[text.index("</head>") :]
    assert not re.search(outside, ours)
    assert not re.search(r"https?://", ours)
    for title in ("Time per layer", "Roofline", "Who did what when", "Memory", "Predicted against measured"):
        assert title in text


def test_names_are_not_markup(tmp_path: Path) -> None:
    pytest.importorskip("plotly")
    graph = Graph("<script>alert(1)</script>")
    name = graph("relu", "</script><b>", graph.input("x", (2, 8)))
    e = bslite.explain(graph.build(name), runs=2, limits=LIMITS)
    e.save_html(tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert "alert(1)</script>" not in text
    assert "</script><b>" not in text


def test_waiting_is_laid_to_what_was_waited_for() -> None:
    """Two walkers; the second waits for the first's long item of step 0 before step 1 can start."""
    items = Items(
        step=np.array([0, 0, 1, 1]), item=np.array([0, 1, 0, 1]), walker=np.array([1, 0, 0, 1]),
        start=np.array([0.0, 0.0, 3.0, 3.0]), stop=np.array([1.0, 3.0, 4.0, 5.0]),
    )  # fmt: skip
    busy, wait, span = _parts(items, 2, 2)
    assert busy.tolist() == [4.0, 3.0]
    assert wait.tolist() == [2.0, 1.0]
    assert span.tolist() == [3.0, 2.0]


def test_waiting_where_nobody_works() -> None:
    """What starts next is waited for; a walker without an item waits for what the other one works on."""
    items = Items(
        step=np.array([0, 1]), item=np.array([0, 0]), walker=np.array([0, 0]),
        start=np.array([0.0, 3.0]), stop=np.array([2.0, 4.0]),
    )  # fmt: skip
    busy, wait, _ = _parts(items, 2, 2)
    assert busy.tolist() == [2.0, 1.0]
    assert wait.tolist() == [2.0, 3.0]


def test_report_of_a_walker_that_got_nothing(found: Any, tmp_path: Path) -> None:
    pytest.importorskip("plotly")
    _, e = found
    late = dataclasses.replace(e.profile, threads=e.profile.threads + 1)
    dataclasses.replace(e, profile=late).save_html(tmp_path / "report.html")


def test_inputs_it_takes() -> None:
    spec = one_op("relu", ("N", 8))
    for given, batch in (((3, 8), None), ([(3, 8)], None), (np.ones((3, 8), np.float32), None), (None, 3)):
        assert bslite.explain(spec, given, batch=batch, runs=2, limits=LIMITS).shapes == ((3, 8),)


def test_a_dict_mixes_shapes_and_arrays_and_may_lack_inputs() -> None:
    spec = one_op("add", ("N", 8), ("N", 8))
    x = np.ones((3, 8), np.float32)
    for given in ({"x0": (3, 8)}, {"x0": (3, 8), "x1": x}, {"x1": x}):
        assert bslite.explain(spec, given, runs=2, limits=LIMITS).shapes == ((3, 8), (3, 8))
    assert bslite.explain(spec, {}, batch=5, runs=2, limits=LIMITS).shapes == ((5, 8), (5, 8))
    with pytest.raises(bslite.InputError, match="takes x0, x1, not c"):
        bslite.explain(spec, {"c": x})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch": 0}, "batch must be a positive integer"),
        ({"threads": 0}, "threads must be a positive integer"),
        ({"shape": (1, 9)}, "axis 1 is 9, should be 8"),
        ({"shape": np.ones((1, 8), np.float32), "batch": 2}, "either an input or a batch"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(bslite.BsliteError, match=message):
        bslite.explain(one_op("relu", ("N", 8)), limits=LIMITS, **arguments)


def test_without_plotly(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    e = bslite.explain(one_op("relu", (2, 8)), runs=2, limits=LIMITS)
    monkeypatch.setitem(sys.modules, "plotly", None)
    with pytest.raises(bslite.UnsupportedError, match=r"bslite\[report\]"):
        e.save_html(tmp_path / "report.html")


def test_command(call: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from bslite.explanation import api

    monkeypatch.setattr(api, "measured", lambda threads: LIMITS)
    trace, figures = tmp_path / "trace.json", tmp_path / "figures.json"
    shape = ("--arch", "squeezenet1_1", "--shape", "1,3,64,64", "--runs", "2")
    assert "bound by" in call("explain", *shape, "--trace", trace, "--json", figures)
    assert json.loads(trace.read_text())["traceEvents"]
    assert json.loads(figures.read_text())["model"] == "squeezenet1_1"
    assert "cannot write" in call("explain", *shape, "--trace", tmp_path / "no" / "trace.json", code=2)
