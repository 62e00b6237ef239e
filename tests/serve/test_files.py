"""What a folder of models gives, and what a request's shapes may do wrong in a model."""

from pathlib import Path

import numpy as np
import pytest
from support.model_files import small_model
from support.noise import noise
from support.onnx_models import INT64, helper, image_net, model, value
from support.serving import asked, binary, compiled, found, serving, tensor

import bslite
from bslite import InputError
from bslite.serve.found import find


def test_two_files_of_one_name_are_an_error(tmp_path: Path) -> None:
    bslite.save(small_model(), tmp_path / "m.safetensors")
    (tmp_path / "m.onnx").write_bytes(image_net().SerializeToString())
    with pytest.raises(InputError, match=r"model 'm' is both .*m\.onnx and .*m\.safetensors"):
        find([str(tmp_path)])


def test_shapes_that_a_layer_cannot_take_are_the_clients_fault() -> None:
    add = helper.make_node("Add", ["x", "z"], ["w"])
    proto = model([add], [value("x", ["n", 4]), value("z", ["m", 4])], [value("w", ["k", 4])])
    with serving(compiled(proto, "sum")) as running:
        got = running.infer("sum", asked(tensor("x", noise(2, 4)), tensor("z", noise(3, 4))))
        assert (got.status_code, "broadcast" in got.json()["error"]) == (400, True)


@pytest.mark.parametrize("as_bytes", [False, True])
def test_an_output_of_another_type_than_declared(as_bytes: bool) -> None:
    """What a file says of its outputs is not checked; the answer says what it holds."""
    node = helper.make_node("Relu", ["x"], ["y"])
    proto = model([node], [value("x", ["n", 4])], [value("y", ["n", 4], INT64)])
    x = noise(2, 4)
    with serving(compiled(proto, "relu")) as running:
        body, headers = binary({"x": x}, parameters={"binary_data_output": as_bytes})
        got = running.infer("relu", body, headers)
        np.testing.assert_array_equal(found(got, "y"), np.maximum(x, 0))
