"""What an ONNX model has at its border or from long ago: other types, Fourier transforms, opsets before 7."""

from typing import Any

import numpy as np
import pytest
from support.noise import noise
from support.onnx_models import FLOAT, helper, model, numpy_helper, onnx, value

import bslite
from bslite import InputError, UnsupportedError

node, kinds = helper.make_node, onnx.TensorProto


def run(made: Any, **feed: Any) -> Any:
    return bslite.compile(made.SerializeToString())(feed)[0]


def test_an_input_that_is_cast_at_once_is_cast_outside() -> None:
    nodes = [
        node("Transpose", ["x"], ["t"], perm=[0, 2, 1]),
        node("Cast", ["t"], ["f"], to=FLOAT),
        node("Mul", ["f", "s"], ["m"]),
        node("Cast", ["m"], ["y"], to=kinds.DOUBLE),
    ]
    inputs = [value("x", ["n", 3, 2], kinds.DOUBLE)]
    made = model(nodes, inputs, [value("y", None, kinds.DOUBLE)], {"s": np.float32(0.5)})
    x = noise(2, 3, 2).astype(np.float64)
    y = run(made, x=x)
    assert y.dtype == np.float64
    assert np.array_equal(y, x.astype(np.float32).swapaxes(1, 2) * np.float32(0.5))
    with pytest.raises(InputError, match="input 'x' is float32, expected float64"):
        run(made, x=noise(2, 3, 2))
    nodes[0] = node("Add", ["x", "x"], ["t"], name="twice")  # computes in float64
    own = bslite.compile(model(nodes, inputs, ["y"], {"s": np.float32(0.5)}))
    assert np.array_equal(own(x)[0], (x + x).astype(np.float32) * np.float32(0.5))
    assert "NumPy: node 'twice' (Add): of float64" in own.pieces


def test_a_model_of_float16_is_computed_in_float32() -> None:
    w = noise(5, 4).astype(np.float16)
    nodes = [node("MatMul", ["x", "w"], ["m"]), node("Cast", ["m"], ["c"], to=kinds.FLOAT16),
             node("Relu", ["c"], ["y"])]  # fmt: skip
    made = model(nodes, [value("x", ["n", 5], kinds.FLOAT16)], [value("y", None, kinds.FLOAT16)], {"w": w})
    x = noise(3, 5).astype(np.float16)
    y = run(made, x=x)
    assert y.dtype == np.float16
    exact = np.maximum(x.astype(np.float64) @ w.astype(np.float64), 0)
    np.testing.assert_allclose(y, exact, rtol=2**-10)
    assert numpy_helper.to_array(made.graph.initializer[0]).dtype == np.float16  # the caller's is left alone


@pytest.mark.parametrize("length", [None, 5, 9])
@pytest.mark.parametrize(
    ("onesided", "inverse", "parts"), [(0, 0, 1), (1, 0, 1), (0, 0, 2), (0, 1, 2), (1, 1, 2)]
)
def test_dft(length: int | None, onesided: int, inverse: int, parts: int) -> None:
    x = noise(2, 7, 3, parts)
    reads = ["x", "length", "axis"] if length else ["x", "", "axis"]
    stored = {"length": np.int64(length or 0), "axis": np.int64(1)}
    made = model(
        [node("DFT", reads, ["y"], onesided=onesided, inverse=inverse)],
        [value("x", [2, 7, 3, parts])], ["y"], stored, opset=20,
    )  # fmt: skip
    signal = (x[..., 0] + 1j * x[..., 1] if parts == 2 else x[..., 0]).astype(np.complex128)
    if onesided and inverse:
        signal[:, 0].imag = 0
        x[:, 0, :, 1] = 0  # of a real signal; the last bin's imaginary part does not count either
        want = np.fft.irfft(signal, length, axis=1)[..., None]
    else:
        function = np.fft.ifft if inverse else np.fft.fft
        want = function(signal, length, axis=1)
        want = np.stack([want.real, want.imag], -1)
        if onesided:
            want = want[:, : (length or 7) // 2 + 1]
    y = run(made, x=x)
    assert y.shape == want.shape
    assert np.linalg.norm(y - want) < 4e-7 * np.linalg.norm(want)


def test_stft() -> None:
    x, window = noise(2, 20), np.hanning(8).astype(np.float32)
    made = model(
        [node("STFT", ["x", "step", "w", "length"], ["y"])], [value("x", [2, 20])], ["y"],
        {"step": np.int64(3), "w": window, "length": np.int64(8)},
    )  # fmt: skip
    frames = np.stack([x[:, i : i + 8] * window for i in range(0, 13, 3)], 1).astype(np.float64)
    want = np.fft.rfft(frames)
    y = run(made, x=x)
    assert y.shape == (2, 5, 5, 2)
    assert np.linalg.norm(y[..., 0] + 1j * y[..., 1] - want) < 4e-7 * np.linalg.norm(want)


def old(op: str, *stored: Any, opset: int = 6, **attrs: Any) -> Any:
    names = [f"s{i}" for i in range(len(stored))]
    return model(
        [node(op, ["x", *names], ["y"], **attrs)], [value("x", [2, 3, 4, 5])], ["y"],
        dict(zip(names, stored, strict=True)), opset=opset,
    )  # fmt: skip


X = noise(2, 3, 4, 5)
ROW, PLANE, SLOPE = noise(3), noise(3, 4), np.abs(noise(3))
OLD: dict[str, tuple[Any, Any]] = {
    "unary": (old("Abs"), np.abs(X)),
    "consumed": (old("Relu", opset=1, consumed_inputs=[0]), np.maximum(X, 0)),
    "along axis 1": (old("Add", ROW, broadcast=1, axis=1), X + ROW[:, None, None]),
    "from axis 1": (old("Mul", PLANE, broadcast=1, axis=1), X * PLANE[:, :, None]),
    "last axes": (old("Sub", noise(4, 5), broadcast=1), X - noise(4, 5)),
    "number": (old("Div", np.float32([3]), broadcast=1), X / np.float32(3)),
    "prelu": (old("PRelu", SLOPE), np.where(X < 0, X * SLOPE[:, None, None], X)),
    "concat": (old("Concat", X, opset=1), np.concatenate([X, X], 1)),
    "reshape": (old("Reshape", opset=1, shape=[0, -1]), X.reshape(2, -1)),
    "pad": (
        old("Pad", opset=1, paddings=[0, 0, 1, 0, 0, 0, 0, 2]), np.pad(X, ((0, 0), (0, 0), (1, 0), (0, 2))),
    ),
    "tile": (old("Tile", np.float32([2]), np.float32([1]), opset=1), np.concatenate([X, X], 1)),
    "clip": (old("Clip", opset=1, max=0.25), np.minimum(X, np.float32(0.25))),
    "dropout": (old("Dropout", is_test=1), X),
}  # fmt: skip


@pytest.mark.parametrize("name", OLD)
def test_opsets_before_7(name: str) -> None:
    made, want = OLD[name]
    np.testing.assert_allclose(run(made, x=X), want, rtol=1e-6)


def test_what_opsets_before_7_say_of_training() -> None:
    stats = [np.abs(noise(3)) + 1 for _ in range(4)]
    want = (X - stats[2][:, None, None]) / np.sqrt(stats[3][:, None, None] + 1e-5)
    want = want * stats[0][:, None, None] + stats[1][:, None, None]
    np.testing.assert_allclose(
        run(old("BatchNormalization", *stats, is_test=1), x=X), want, rtol=1e-5, atol=1e-6
    )
    for made in (old("BatchNormalization", *stats), old("Dropout")):
        with pytest.raises(UnsupportedError, match="in training mode"):
            run(made, x=X)
    casts = model([node("Cast", ["x"], ["y"], to="INT32")], [value("x", [3])], ["y"], opset=1)
    assert run(casts, x=np.float32([1.5, -2, 3])).tolist() == [1, -2, 3]
    with pytest.raises(bslite.SpecError, match="there is no type 'WIDE'"):
        run(model([node("Cast", ["x"], ["y"], to="WIDE")], [value("x", [3])], ["y"], opset=1), x=noise(3))
