"""onnxruntime's interface: what a program asks of it, with onnxruntime's own answers beside."""

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.noise import noise
from support.onnx_models import INT64, helper, image_net, model, value

import bslite
import bslite.onnxruntime as ort
from bslite.errors import InputError, UnsupportedError


def metadata_model() -> Any:
    made = model(
        [helper.make_node("Add", ["x", "i"], ["y"])], [value("x", ["n", 3]), value("i", ["n", 3])], ["y"]
    )
    made.producer_name, made.graph.doc_string, made.model_version = "tests", "sums", 7
    helper.set_model_props(made, {"classes": "a,b"})
    return made


def session(made: Any = None, **kwargs: Any) -> Any:
    return ort.InferenceSession((made or metadata_model()).SerializeToString(), **kwargs)


def test_a_session_tells_of_its_model() -> None:
    s = session(providers=["CUDAExecutionProvider", "CPUExecutionProvider"])
    assert [(i.name, i.type, i.shape) for i in s.get_inputs()] == [
        ("x", "tensor(float)", ["n", 3]),
        ("i", "tensor(float)", ["n", 3]),
    ]
    meta = s.get_modelmeta()
    assert (meta.producer_name, meta.graph_description, meta.version) == ("tests", "sums", 7)
    assert meta.custom_metadata_map == {"classes": "a,b"}
    assert s.get_providers() == ort.get_available_providers() == ["CPUExecutionProvider"]
    indices = model([helper.make_node("Abs", ["x"], ["y"])], [value("x", ["n"], INT64)], ["y"])
    assert session(indices).get_inputs()[0].type == "tensor(int64)"


def test_run_returns_what_is_named_in_that_order() -> None:
    x = noise(2, 3, 8, 8)
    s = session(image_net())
    (name,) = [o.name for o in s.get_outputs()]
    feed = {s.get_inputs()[0].name: x}
    (first,), (second,) = s.run(None, feed), s.run([name], feed)
    assert np.array_equal(first, second)
    with pytest.raises(InputError, match="there is no output 'none'"):
        s.run(["none"], feed)
    both = session(model([helper.make_node("Split", ["x"], ["a", "b"])], [value("x", [4])], ["a", "b"]))
    for names, want in ((["b"], [[2, 3]]), (["b", "a"], [[2, 3], [0, 1]]), (None, [[0, 1], [2, 3]])) * 2:
        assert [y.tolist() for y in both.run(names, {"x": np.arange(4, dtype=np.float32)})] == want
    with pytest.raises(InputError, match="there is no input y"):
        both.run(None, {"y": np.arange(4, dtype=np.float32)})


def test_a_value_that_is_named_twice_is_returned_twice() -> None:
    made = model([helper.make_node("Neg", ["x"], ["y"])], [value("x", ["n"])], ["y", "x", "y"])
    s, compiled, x = session(made), bslite.compile(made.SerializeToString()), noise(3)
    for _ in range(2):  # the second call goes the short way
        for results in (s.run(None, {"x": x}), compiled(x).tuple()):
            assert [y.tolist() for y in results] == [(-x).tolist(), x.tolist(), (-x).tolist()]
        assert len(s.run_with_ort_values(None, {"x": ort.OrtValue(x)})) == 3
    assert list(compiled(x)) == ["y", "x"]
    assert np.array_equal(compiled(x)[2], -x)
    assert len(bslite.compile(bslite.from_onnx(made))(x).tuple()) == 3


def test_lists_and_values_are_taken_as_arrays() -> None:
    sums = session()
    (made,) = sums.run(None, {"x": [[1, 2, 3]], "i": ort.OrtValue(np.full((1, 3), 0.5, np.float32))})
    assert made.dtype == np.float32
    assert made.tolist() == [[1.5, 2.5, 3.5]]
    (value_made,) = sums.run_with_ort_values(["y"], {k: ort.OrtValue(noise(2, 3)) for k in ("x", "i")})
    assert np.array_equal(value_made.numpy(), noise(2, 3) + noise(2, 3))
    indices = model([helper.make_node("Add", ["x", "x"], ["y"])], [value("x", ["n"], INT64)], ["y"])
    ids = session(indices)
    assert ids.run(None, {"x": [-3, 4]})[0].tolist() == [-6, 8]
    for wrong in ([0.5], [[1], [2, 3]], ["a"], [2**70]):
        with pytest.raises(InputError, match="input 'x'"):
            ids.run(None, {"x": wrong})


ARRAYS = helper.make_tensor_type_proto(1, None)
LISTS = helper.make_sequence_type_proto(ARRAYS)


def identity_of(kind: Any) -> Any:
    """A model that returns its input, a value of this type."""
    s, t = (helper.make_value_info(name, kind) for name in "st")
    return model([helper.make_node("Identity", ["s"], ["t"])], [s], [t])


def zip_map(key: int, **labels: Any) -> Any:
    """A model that makes a dict of each row."""
    kind = helper.make_sequence_type_proto(helper.make_map_type_proto(key, ARRAYS))
    node = helper.make_node("ZipMap", ["x"], ["z"], domain="ai.onnx.ml", **labels)
    return model(
        [node], [value("x", ["n", 2])], [helper.make_value_info("z", kind)], domains={"ai.onnx.ml": 1}
    )


@pytest.mark.parametrize(
    ("made", "want"),
    [
        (identity_of(LISTS), "seq(tensor(float))"),
        (identity_of(helper.make_optional_type_proto(ARRAYS)), "optional(tensor(float))"),
        (identity_of(helper.make_optional_type_proto(LISTS)), "optional(seq(tensor(float)))"),
        (zip_map(7, classlabels_int64s=[0, 1]), "seq(map(int64,tensor(float)))"),
        (zip_map(8, classlabels_strings=["a", "b"]), "seq(map(string,tensor(float)))"),
    ],
)
def test_types_that_are_no_arrays(made: Any, want: str) -> None:
    theirs = pytest.importorskip("onnxruntime").InferenceSession(made.SerializeToString())
    for s in (session(made), theirs):
        assert s.get_outputs()[0].type == want
        assert s.get_inputs()[0].type in (want, "tensor(float)")


def test_a_session_takes_a_sequence() -> None:
    s, arrays = session(identity_of(LISTS)), [noise(2), noise(3)]
    (made,) = s.run(None, {"s": arrays})
    assert all(map(np.array_equal, made, arrays))
    assert len(made) == 2


def test_a_model_of_unknown_operators_makes_no_session() -> None:
    node = helper.make_node
    branches = [
        helper.make_graph([node(op, ["x"], [op])], op, [], [helper.make_tensor_value_info(op, 1, None)])
        for op in ("Relu", "Frob")
    ]
    nodes = [
        node("Nicate", ["x"], ["unread"]),
        node("If", ["c"], ["a"], then_branch=branches[0], else_branch=branches[1]),
        node("Frob", ["a"], ["b"], name="first"),
        node("FusedConv", ["b"], ["y"], domain="com.strange"),
    ]
    strange = model(nodes, [value("x", ["n"]), value("c", [], 9)], ["y"])
    with pytest.raises(UnsupportedError) as caught:
        session(strange)
    assert sorted(str(caught.value).splitlines()[1:]) == [
        "  1 x Frob: no operator of that name; at first",
        "  1 x FusedConv: of the operator set 'com.strange'; at y",
    ]


def test_what_is_missing_says_so() -> None:
    with pytest.raises(
        AttributeError, match=r"in the place of onnxruntime, has no 'SparseTensor'; it has .*, .*"
    ):
        _ = ort.SparseTensor
    with pytest.raises(AttributeError):
        ort.SessionOptions().intra_op_threads = 1


def test_the_number_of_threads_and_fixed_sizes_count() -> None:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_free_dimension_override_by_name("n", 2)
    s = session(sess_options=options)
    assert s._model.threads == 1
    assert s.get_inputs()[0].shape == [2, 3]
    assert s.get_session_options().get_session_config_entry("session.intra_op.allow_spinning") == "0"
    x = noise(2, 3)
    assert np.array_equal(s.run(None, {"x": x, "i": x})[0], x + x)
    with pytest.raises(InputError, match=r"input 'x': got \[4, 3\], expected \[2, 3\]"):
        s.run(None, {"x": noise(4, 3), "i": noise(4, 3)})
    with pytest.raises(UnsupportedError, match="custom operators"):
        options.register_custom_ops_library("ops.so")
    options.intra_op_num_threads = -1
    with pytest.raises(InputError, match="intra_op_num_threads is -1"):
        session(sess_options=options)


def test_bindings_read_and_write_the_caller_s_arrays() -> None:
    s, x = session(), noise(2, 3)
    binding = s.io_binding()
    binding.bind_cpu_input("x", x)
    binding.bind_ortvalue_input("i", ort.OrtValue.ortvalue_from_numpy(x))
    place = ort.OrtValue.ortvalue_from_shape_and_type([2, 3], np.float32)
    binding.bind_ortvalue_output("y", place)
    s.run_with_iobinding(binding)
    assert np.array_equal(place.numpy(), x + x)
    x += 1  # the next run sees it
    s.run_with_iobinding(binding)
    assert np.array_equal(binding.copy_outputs_to_cpu()[0], x + x)
    binding.clear_binding_outputs()
    binding.bind_output("y")
    s.run_with_iobinding(binding)
    (made,) = binding.get_outputs()
    assert (made.shape(), made.data_type(), made.device_name()) == ([2, 3], "tensor(float)", "cpu")
    binding.bind_ortvalue_output("y", ort.OrtValue(np.empty((1, 3), np.float32)))
    with pytest.raises(InputError, match=r"output 'y' is \[2, 3\], its value \[1, 3\]"):
        s.run_with_iobinding(binding)
    with pytest.raises(InputError, match="device 'cuda'"):
        binding.bind_output("y", "cuda")


def test_bindings_take_addresses() -> None:
    s, x, place = session(), noise(2, 3), np.empty((2, 3), np.float32)
    binding = s.io_binding()
    for name in ("x", "i"):
        binding.bind_input(name, "cpu", 0, np.float32, [2, 3], x.ctypes.data)
    binding.bind_output("y", "cpu", 0, 1, [2, 3], place.ctypes.data)
    s.run_with_iobinding(binding)
    assert np.array_equal(place, x + x)
    with pytest.raises(InputError, match="an address without element type"):
        binding.bind_output("y", buffer_ptr=place.ctypes.data)
    binding.bind_output("y")
    s.run_with_iobinding(binding)
    (first,) = binding.get_outputs()
    x += 1
    s.run_with_iobinding(binding)
    assert np.array_equal(first.numpy(), place)  # the second run wrote elsewhere


def test_addresses_and_memory_are_checked() -> None:
    s, x, place = session(), noise(2, 3), np.zeros((2, 3), np.int64)
    binding = s.io_binding()
    for name in ("x", "i"):
        binding.bind_cpu_input(name, x)
    binding.bind_output("y", "cpu", 0, np.int64, [2, 3], place.ctypes.data)
    with pytest.raises(InputError, match="output 'y' is float32, its value int64"):
        s.run_with_iobinding(binding)
    assert not place.any()
    with pytest.raises(InputError, match=r"shape \[2, 3\] at address 0"):
        binding.bind_input("x", "cpu", 0, np.float32, [2, 3], 0)
    with pytest.raises(InputError, match=r"shape \[-1, 3\]: sizes are not negative"):
        binding.bind_output("y", "cpu", 0, np.float32, [-1, 3], place.ctypes.data)
    with pytest.raises(InputError, match="an address gives numbers only"):
        binding.bind_output("y", "cpu", 0, object, [2, 3], place.ctypes.data)


def test_values_are_memory_of_others_too() -> None:
    x = noise(2, 3)
    held = ort.OrtValue.from_dlpack(x)
    assert (held.data_ptr(), held.tensor_size_in_bytes(), held.is_tensor()) == (x.ctypes.data, 24, True)
    held.update_inplace(np.ones((2, 3), np.float32))
    assert np.array_equal(x, np.asarray(held))
    assert np.array_equal(np.from_dlpack(held), x)
    with pytest.raises(InputError, match=r"a value of float32 \[2, 3\] takes no float32 \[3\]"):
        held.update_inplace(np.ones(3, np.float32))
    with pytest.raises(InputError, match="takes no float64"):
        held.update_inplace(np.ones((2, 3)))
    halves = ort.OrtValue.ortvalue_from_numpy_with_onnx_type(np.zeros(2, np.uint16), 10)
    assert halves.data_type() == "tensor(float16)"
    assert ort.OrtValue([x]).is_tensor_sequence()


def test_run_async_calls_back() -> None:
    s, x, found, done = session(), noise(1, 3), [], threading.Event()

    def take(results: Any, user: str, wrong: str) -> None:
        found.append((results, user, wrong))
        done.set()

    for feed in ({"x": x, "i": x}, {"x": x}, 7):
        s.run_async(None, feed, take, "mine")
        assert done.wait(60)
        done.clear()
    ((made,), user, wrong), (none, _, said), (nothing, _, _) = found
    assert np.array_equal(made, x + x)
    assert (user, wrong, none, nothing) == ("mine", "", [], [])
    assert said.endswith("i is missing")


def test_installed_within_installed_leaves_the_module_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    from bslite.onnxruntime import install

    before = list(ort.__path__)
    monkeypatch.setattr(install, "_beside", lambda: [*before, "of theirs"])
    with ort.installed():
        with ort.installed():
            pass
        assert ort.__path__ == [*before, "of theirs"]
    assert ort.__path__ == before


def test_installed_stands_in_for_the_module(tmp_path: Path) -> None:
    import sys

    theirs = sys.modules.get("onnxruntime")
    (tmp_path / "package_of_a_stranger.py").write_text(
        "import onnxruntime as ort\n"
        "from onnxruntime import InferenceSession, SessionOptions\n"
        "from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidArgument, NoSuchFile\n"
        "from onnxruntime.capi import _pybind_state as C\n"
        "from onnxruntime.capi.onnxruntime_inference_collection import Session\n"
    )
    with pytest.MonkeyPatch.context() as patch, ort.installed() as module:
        patch.syspath_prepend(str(tmp_path))
        stranger = __import__("package_of_a_stranger")
        assert stranger.ort is module is ort
        assert stranger.C.get_available_providers() == ["CPUExecutionProvider"]
        assert stranger.Session is stranger.InferenceSession
        assert stranger.ort.capi.onnxruntime_pybind11_state.SessionOptions is stranger.SessionOptions
        with pytest.raises(stranger.NoSuchFile):
            stranger.InferenceSession(str(tmp_path / "none.onnx"))
        with pytest.raises(stranger.InvalidArgument):
            session().run(None, {})
    assert sys.modules.get("onnxruntime") is theirs
