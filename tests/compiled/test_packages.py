"""Packages of others, unmodified, with bslite in the place of onnxruntime: their results stay the same.

Each runs in a process of its own, for a package imports onnxruntime once. Those that are not installed are
skipped; `strange` is a package of our own that asks of onnxruntime what they ask.
"""

import json
import textwrap
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.onnx_models import INT64, helper, model, value
from support.process import printed

pytestmark = pytest.mark.processes

#: Package -> a program that uses it and leaves plain data in ``found``.
PROGRAMS = {
    "magika": """
        from magika import Magika
        texts = [b"import os\\nprint(os.name)\\n" * 30, b"{\\"a\\": [1, 2]}" * 20, b"<html><p>x</html>"]
        made = [Magika().identify_bytes(t) for t in texts]
        found = [[m.output.label, m.score] for m in made]
    """,
    "rapidocr_onnxruntime": """
        import cv2
        import numpy as np
        from rapidocr_onnxruntime import RapidOCR
        image = np.full((200, 640, 3), 255, np.uint8)
        for row, text in enumerate(("depth first 1804", "Hello World")):
            cv2.putText(image, text, (20, 70 + 80 * row), cv2.FONT_HERSHEY_SIMPLEX, 1.8, (0, 0, 0), 3)
        lines, _ = RapidOCR()(image)
        found = [[text, float(score), box] for box, text, score in lines]
    """,
    "silero_vad": """
        import numpy as np
        import torch
        from silero_vad import load_silero_vad
        model, found = load_silero_vad(onnx=True), []
        for rate, size in ((16000, 512), (8000, 256)):
            sound = np.sin(np.arange(8 * size) * 440 * np.pi / rate).astype(np.float32)
            parts = [sound[i : i + size] for i in range(0, len(sound), size)]
            found += [model(torch.from_numpy(p), rate).item() for p in parts]
    """,
}

STRANGE = '''
"""A classifier as packages write one: options, providers, metadata, lists, batches of any size."""

import os
import numpy as np
import onnxruntime as rt
from onnxruntime import GraphOptimizationLevel, InferenceSession, SessionOptions
from onnxruntime import get_available_providers, get_device
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument


class Classifier:
    def __init__(self, path):
        rt.disable_telemetry_events()
        rt.set_default_logger_severity(3)
        options = SessionOptions()
        options.log_severity_level = 4
        options.enable_cpu_mem_arena = False
        options.graph_optimization_level = GraphOptimizationLevel.ORT_ENABLE_ALL
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        assert (get_device(), get_available_providers()[-1]) == ("CPU", "CPUExecutionProvider")
        providers = [("CPUExecutionProvider", {"arena_extend_strategy": "kSameAsRequested"})]
        self.session = InferenceSession(path, sess_options=options, providers=providers)
        assert self.session.get_providers() == ["CPUExecutionProvider"]
        self.words = self.session.get_modelmeta().custom_metadata_map["words"].splitlines()
        self.names = [i.name for i in self.session.get_inputs()], [o.name for o in self.session.get_outputs()]
        (ids,) = self.session.get_inputs()
        assert (ids.type, ids.shape) == ("tensor(int64)", ["batch", "length"])

    def __call__(self, ids):
        scores = self.session.run(self.names[1], dict(zip(self.names[0], [ids])))[0]
        return [[self.words[int(k)], *map(float, row)] for k, row in zip(scores.argmax(-1), scores)]

    def refuses(self, ids):
        try:
            self.session.run(None, {self.names[0][0]: ids})
        except InvalidArgument:
            return True
        return False
'''


def outcome(program: str, **env: str | None) -> tuple[list[Any], list[Any]]:
    """What a program finds with bslite in the place of onnxruntime, and with onnxruntime itself."""
    body = textwrap.dedent(program)
    swapped = f"import bslite.onnxruntime\nwith bslite.onnxruntime.installed() as theirs:\n{indented(body)}\n"
    swapped += "    import sys; assert sys.modules['onnxruntime'] is theirs\n"
    last = "import json; print(json.dumps(found, default=lambda x: x.tolist()))"
    return tuple(json.loads(printed(f"{code}\n{last}", **env).splitlines()[-1]) for code in (swapped, body))  # type: ignore[return-value]


def indented(code: str) -> str:
    return textwrap.indent(code.strip("\n"), "    ")


def same(got: Any, want: Any, rtol: float) -> None:
    """The same words and structure, and numbers equal to ``rtol``."""
    if isinstance(want, list):
        assert isinstance(got, list)
        assert len(got) == len(want)
        for g, w in zip(got, want, strict=True):
            same(g, w, rtol)
    elif isinstance(want, float):
        assert np.isclose(got, want, rtol=rtol, atol=1e-6)
    else:
        assert got == want


@pytest.mark.parametrize("package", PROGRAMS)
def test_a_package_finds_the_same(package: str) -> None:
    for needed in (package, "onnxruntime"):
        if find_spec(needed) is None:
            pytest.skip(f"{needed} is not installed")
    got, want = outcome(PROGRAMS[package])
    assert want
    # onnxruntime's answers of magika's model are off the float64 answer by up to 2e-3, bslite's by 3e-6.
    same(got, want, rtol=5e-3)


def test_packages_inside_onnxruntime_run_their_sessions_here(tmp_path: Path) -> None:
    if find_spec("onnxruntime") is None:
        pytest.skip("onnxruntime is not installed")
    made = model(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        [value("x", ["n", 3])], ["y"], {"w": np.arange(12, dtype=np.float32).reshape(3, 4) - 5},
    )  # fmt: skip
    (tmp_path / "m.onnx").write_bytes(made.SerializeToString())
    program = f"""
        import numpy as np, onnxruntime
        from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static
        class Reader(CalibrationDataReader):
            feeds = iter([{{"x": np.full((2, 3), i, np.float32)}} for i in (1, 2)])
            def get_next(self):
                return next(self.feeds, None)
        quantize_static({str(tmp_path / "m.onnx")!r}, {str(tmp_path / "q.onnx")!r}, Reader())
        s = onnxruntime.InferenceSession({str(tmp_path / "q.onnx")!r})
        found = [s.run(None, {{"x": np.ones((1, 3), np.float32)}})[0].tolist()]
    """
    got, want = outcome(program)
    same(got, want, rtol=1e-5)


def test_a_package_of_our_own_finds_the_same(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    stored = {
        "table": rng.standard_normal((50, 8)).astype(np.float32),
        "w": rng.standard_normal((8, 3)).astype(np.float32),
    }  # fmt: skip
    node = helper.make_node
    nodes = [
        node("Gather", ["table", "ids"], ["e"]), node("Relu", ["e"], ["r"]),
        node("ReduceMean", ["r"], ["m"], axes=[1], keepdims=0), node("MatMul", ["m", "w"], ["s"]),
        node("Softmax", ["s"], ["p"], axis=-1),
    ]  # fmt: skip
    made = model(nodes, [value("ids", ["batch", "length"], INT64)], ["p"], stored)
    helper.set_model_props(made, {"words": "red\ngreen\nblue"})
    (tmp_path / "m.onnx").write_bytes(made.SerializeToString())
    (tmp_path / "strange.py").write_text(STRANGE)
    program = f"""
        import sys
        sys.path.insert(0, {str(tmp_path)!r})
        import numpy as np
        from strange import Classifier
        classify = Classifier({str(tmp_path / "m.onnx")!r})
        rng = np.random.default_rng(1)
        found = [classify([[1, 2, 3], [4, 5, 6]])]
        found += [classify(rng.integers(0, 50, (n, n + 3))) for n in (1, 4, 2)]
        found += [classify.refuses(x) for x in (np.zeros((1, 3), np.int32), np.zeros(3, np.int64))]
    """
    if find_spec("onnxruntime") is None:
        pytest.skip("onnxruntime is not installed")
    got, want = outcome(program)
    assert want[-2:] == [True, True]
    same(got, want, rtol=1e-5)
