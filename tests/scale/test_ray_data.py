"""`bslite.ray.Predictor` in Ray Data, on several nodes: every row once, the bits of a local run."""

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.graphs import Graph, network
from support.ray_cluster import NODE
from support.ray_workers import Counted, Held, Noted, begun, entries, predicted, threads_in, wait_for

import bslite
import bslite.ray

ActorPoolStrategy = pytest.importorskip("ray.data").ActorPoolStrategy
#: Ray warns of its own parts.
pytestmark = [pytest.mark.processes, pytest.mark.filterwarnings("ignore::Warning:ray")]

ROWS = 48


def wide() -> bslite.ModelSpec:
    """A model of 4 MB, far beyond what Ray copies rather than shares."""
    graph, rng = Graph("wide"), np.random.default_rng(0)
    x = graph.input("x", ("N", 1024))
    weight = rng.standard_normal((1024, 1024)).astype(np.float32)
    return graph.build(graph("linear", "y", x, weight=weight, bias=np.zeros(1024, np.float32)))


def table(spec: bslite.ModelSpec, rows: int = ROWS) -> Any:
    """A dataset of numbered rows with a column for the model's input, and its values as one array."""
    import ray.data

    x = np.random.default_rng(1).standard_normal((rows, *spec.inputs[0].example[1:])).astype(np.float32)
    return ray.data.from_items([{"id": i, "image": x[i]} for i in range(rows)], override_num_blocks=8), x


def named(spec: bslite.ModelSpec) -> dict[str, Any]:
    return {"inputs": {spec.inputs[0].name: "image"}, "outputs": {spec.outputs[0]: "made"}}


def test_rows_outlive_a_node(cluster: Any, tmp_path: Path) -> None:
    spec, log = network("squeezenet1_1", size=64), tmp_path / "log"
    dataset, x = table(spec)
    doomed = cluster.add_node(**NODE, num_cpus=1, resources={"doomed": 1})
    killed = threading.Thread(
        target=lambda: (
            wait_for(lambda: begun(log, doomed.node_id)),
            cluster.remove_node(doomed, allow_graceful=False),
        )
    )
    killed.start()
    made = dataset.map_batches(
        Held,
        fn_constructor_args=(doomed.node_id, log, spec),
        fn_constructor_kwargs=named(spec),
        compute=ActorPoolStrategy(size=3, max_tasks_in_flight_per_actor=1),  # so that each gets one
        num_cpus=1,
        batch_size=4,
    ).take_all()
    killed.join()
    assert sorted(row["id"] for row in made) == list(range(ROWS))
    want = bslite.run(spec, x)
    assert all(row["made"].tobytes() == want[row["id"]].tobytes() for row in made)
    others = {entry[1] for entry in entries(log)} - {doomed.node_id}
    assert set(begun(log, doomed.node_id)) <= {row for node in others for row in begun(log, node)}


def test_threads_are_those_that_ray_gives(cluster: Any) -> None:
    import ray

    from bslite.engines.cpu.threads import available_cores

    made = ray.get([ray.remote(num_cpus=cpus)(threads_in).remote() for cpus in (2, 0.5)])
    assert made == [min(2, available_cores()), 1]


def test_the_model_is_sent_once_opened_once_per_worker_and_shared(cluster: Any, tmp_path: Path) -> None:
    plain = wide()
    spec = Counted(plain.name, plain.inputs, plain.nodes, plain.outputs, dict(plain.params))
    dataset, x = table(spec)
    sent = []
    for size, log in ((ROWS, tmp_path / "few"), (2, tmp_path / "many")):
        before = Counted.sent
        made = dataset.map_batches(
            Noted,
            fn_constructor_args=(log, spec),
            fn_constructor_kwargs=named(spec),
            compute=ActorPoolStrategy(size=2),
            num_cpus=1,
            batch_size=size,
        ).take_all()
        sent.append(Counted.sent - before)
        assert [row["made"].tobytes() for row in sorted(made, key=lambda r: r["id"])] == [
            y.tobytes() for y in bslite.run(plain, x)
        ]
        assert all(row["shared"] for row in made)
        assert {row["threads"] for row in made} == {1}
    opened = [e[0] for e in entries(tmp_path / "many") if e[2] == "open"]
    assert len(opened) == len(set(opened)) == 2
    assert len([e for e in entries(tmp_path / "many") if e[2] == "batch"]) == ROWS // 2
    assert sent[0] == sent[1], "more batches send the model more often"


def test_a_model_comes_as_a_reference_a_path_or_bytes(cluster: Any, tmp_path: Path) -> None:
    import ray

    onnx = pytest.importorskip("onnx")
    spec = wide()
    _, x = table(spec, 6)
    bslite.save(spec, tmp_path / "wide.safetensors")
    text = (
        '<ir_version: 8, opset_import: ["": 18]> g (float[N, 1024] x) => (float[N, 1024] y) { y = Relu (x) }'
    )
    relu = onnx.parser.parse_model(text).SerializeToString()
    models = [ray.put(spec), tmp_path / "wide.safetensors", relu, ray.put(relu)]
    made = ray.get([ray.remote(predicted).remote([model], {"x": x}) for model in models])
    linear, positive = bslite.run(spec, x).tobytes(), np.maximum(x, 0).tobytes()
    assert [one["y"].tobytes() for one in made] == [linear, linear, positive, positive]


def test_rays_error_has_ours_in_it(cluster: Any) -> None:
    dataset, _ = table(wide(), 4)
    predict = dataset.map_batches(
        bslite.ray.Predictor, fn_constructor_args=(wide(),), compute=ActorPoolStrategy(size=1)
    )
    with pytest.raises(Exception, match="InputError: there is no column 'x' for input x: float32"):
        predict.take_all()
