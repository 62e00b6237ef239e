"""`from_state_dict`: every accepted source gives the same model, every wrong one a complete error."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from safetensors.torch import save_file as save_torch
from support.process import printed

from bslite.errors import FileError, InputError, SpecError, WeightsError
from bslite.frontends.weights.architectures.random_weights import random_state_dict
from bslite.frontends.weights.state_dict import from_state_dict

ARCH = "squeezenet1_1"
FIRST = "features.0.weight"  # [64, 3, 3, 3]
LAST = "classifier.1.weight"  # [classes, 512, 1, 1]


@pytest.fixture
def weights() -> dict[str, Any]:
    return dict(random_state_dict(ARCH, num_classes=10))


def message(weights: Any, arch: str = ARCH, **options: Any) -> str:
    with pytest.raises(WeightsError) as e:
        from_state_dict(arch, weights, **options)
    return str(e.value)


def test_arrays_are_used_as_they_are(weights: dict[str, Any]) -> None:
    spec = from_state_dict(ARCH, weights)
    assert spec.name == ARCH
    # a read-only view, not a copy
    assert spec.params[FIRST].ctypes.data == weights[FIRST].ctypes.data
    assert spec.params[FIRST].strides == weights[FIRST].strides
    assert spec.params[LAST].shape[0] == 10


def test_strided_arrays_are_made_contiguous(weights: dict[str, Any]) -> None:
    want = weights[FIRST]
    weights[FIRST] = np.asfortranarray(want)
    got = from_state_dict(ARCH, weights).params[FIRST]
    assert got.flags.c_contiguous
    assert np.array_equal(got, want)


def test_all_problems_come_in_one_error(weights: dict[str, Any]) -> None:
    del weights["features.0.bias"], weights["features.3.squeeze.weight"]
    weights["extra.weight"] = np.zeros((2, 3), np.float32)
    weights["other"] = np.zeros((), np.float32)
    weights[FIRST] = weights[FIRST][:, :1]
    weights["features.3.squeeze.bias"] = weights["features.3.squeeze.bias"].astype(np.float64)
    assert message(weights) == "\n".join(
        [
            "the weights do not fit squeezenet1_1",
            "  missing: 2",
            "    features.0.bias [64]",
            "    features.3.squeeze.weight [16, 64, 1, 1]",
            "  unexpected: 2",
            "    extra.weight [2, 3]",
            "    other []",
            "  wrong shape: 1",
            "    features.0.weight: got [64, 1, 3, 3], expected [64, 3, 3, 3]",
            "  wrong dtype (nothing is cast silently): 1",
            "    features.3.squeeze.bias: got float64, expected float32 [16]",
        ]
    )


def test_empty_state_dict_lists_every_parameter() -> None:
    text = message({})
    assert "missing: 52" in text
    assert "classifier.1.weight [1000, 512, 1, 1]" in text


def test_another_architectures_weights() -> None:
    text = message(random_state_dict("resnet18"), arch="resnet50")
    assert "missing: " in text
    assert "layer1.0.conv1.weight: got [64, 64, 3, 3], expected [64, 64, 1, 1]" in text
    assert "fc.weight: got [1000, 512], expected [1000, 2048]" in text


@pytest.mark.parametrize("dtype", ["float64", "float16", "int32", ">f4", "complex64", "object"])
def test_no_dtype_is_cast(weights: dict[str, Any], dtype: str) -> None:
    weights[FIRST] = weights[FIRST].astype(dtype)
    assert f"{FIRST}: got {np.dtype(dtype)}, expected float32 [64, 3, 3, 3]" in message(weights)


def test_values_that_are_no_arrays(weights: dict[str, Any]) -> None:
    weights[FIRST] = weights[FIRST].tolist()
    weights["features.0.bias"] = None
    text = message(weights)
    assert f"{FIRST}: got a list, expected float32" in text
    assert "features.0.bias: got a NoneType, expected float32 [64]" in text


def test_integer_counters_are_ignored(weights: dict[str, Any]) -> None:
    weights["features.0.num_batches_tracked"] = np.array(7, np.int64)
    weights["mask"] = np.array([True])
    assert set(from_state_dict(ARCH, weights).params).isdisjoint({"mask", "features.0.num_batches_tracked"})
    weights["scale"] = np.ones(3, np.float16)
    assert "unexpected: 1\n    scale float16" in message(weights)


def test_auxiliary_heads_are_ignored() -> None:
    for arch, head in (("inception_v3", "AuxLogits.fc.weight"), ("googlenet", "aux2.fc1.bias")):
        weights = {**random_state_dict(arch), head: np.zeros((5, 5), np.float32)}
        assert head not in from_state_dict(arch, weights).params
    resnet = {**random_state_dict("resnet18"), "aux1.fc1.bias": np.zeros(3, np.float32)}
    assert "unexpected: 1\n    aux1.fc1.bias [3]" in message(resnet, arch="resnet18")


def test_old_densenet_names() -> None:
    weights = random_state_dict("densenet121")
    old = {
        key.replace(".norm1.", ".norm.1.").replace(".conv2.", ".conv.2."): array
        for key, array in weights.items()
    }
    assert "features.denseblock1.denselayer1.norm.1.weight" in old
    assert list(from_state_dict("densenet121", old).params) == list(weights)
    both = {**old, **weights}
    assert "features.denseblock1.denselayer1.norm.1.weight" in message(both, arch="densenet121")


def test_number_of_classes(weights: dict[str, Any]) -> None:
    assert from_state_dict(ARCH, weights, num_classes=10).params[LAST].shape[0] == 10
    text = message(weights, num_classes=1000)
    assert f"{LAST}: got [10, 512, 1, 1], expected [1000, 512, 1, 1]" in text
    for wrong in (0, -1, 2.5, "10"):
        assert f"num_classes is {wrong!r}, expected a positive integer" in message(weights, num_classes=wrong)


def test_image_size_too_small_names_the_layer(weights: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match=r"squeezenet1_1, layer 'features\.\d+'.*too small"):
        from_state_dict(ARCH, weights, image_size=4)
    with pytest.raises(InputError, match="'x'"):
        from_state_dict(ARCH, weights, image_size=0)


def test_transform_input_only_where_it_exists(weights: dict[str, Any]) -> None:
    assert "squeezenet1_1 has no transform_input" in message(weights, transform_input=True)


def test_wrong_kind_of_state_dict() -> None:
    assert "got a list, expected a state_dict" in message([1, 2])
    assert "pass module.state_dict()" in message(torch.nn.Linear(2, 2))


def test_safetensors_file_without_torch(weights: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    save_file({**weights, "steps.num_batches_tracked": np.array(3)}, path)
    spec = from_state_dict(ARCH, path)
    assert all(np.array_equal(spec.params[key], weights[key]) for key in weights)
    printed(f"""
import sys
from bslite.frontends.weights.state_dict import from_state_dict
from_state_dict({ARCH!r}, {str(path)!r})
assert "torch" not in sys.modules, "torch was imported"
""")


def test_safetensors_file_with_other_dtypes(weights: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    tensors = {key: torch.from_numpy(array) for key, array in weights.items()}
    tensors[FIRST] = tensors[FIRST].bfloat16()
    tensors["features.0.bias"] = tensors["features.0.bias"].double()
    save_torch(tensors, path)
    text = message(path)
    assert f"{FIRST}: got BF16, expected float32 [64, 3, 3, 3]" in text
    assert "features.0.bias: got F64, expected float32 [64]" in text


def test_broken_files(weights: dict[str, Any], tmp_path: Path) -> None:
    for name in ("none.safetensors", "none.pth"):
        with pytest.raises(FileError, match=rf"{name}: no such file"):
            from_state_dict(ARCH, tmp_path / name)
    with pytest.raises(FileError, match=r"weights\.npz: expected a \.safetensors, \.pth or \.pt file"):
        from_state_dict(ARCH, tmp_path / "weights.npz")
    path = tmp_path / "cut.safetensors"
    save_file(weights, path)
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(FileError, match=r"cut\.safetensors"):
        from_state_dict(ARCH, path)


def test_torch_tensors_and_torch_file(weights: dict[str, Any], tmp_path: Path) -> None:
    tensors = {key: torch.from_numpy(array).requires_grad_() for key, array in weights.items()}
    tensors["counter"] = torch.tensor(3)
    torch.save(tensors, tmp_path / "weights.pth")
    for source in (tensors, tmp_path / "weights.pth", str(tmp_path / "weights.pth")):
        spec = from_state_dict(ARCH, source)
        assert all(np.array_equal(spec.params[key], weights[key]) for key in weights)
    tensors[FIRST] = tensors[FIRST].bfloat16()
    tensors["features.0.bias"] = tensors["features.0.bias"].to("meta")
    text = message(tensors)
    assert f"{FIRST}: got torch.bfloat16, expected float32 [64, 3, 3, 3]" in text
    assert "features.0.bias: got a tensor without plain memory" in text


def test_torch_file_is_never_unpickled(tmp_path: Path) -> None:
    torch.save(Trap(), tmp_path / "trap.pt")
    with pytest.raises(FileError, match=r"trap\.pt: torch cannot load it with weights_only=True"):
        from_state_dict(ARCH, tmp_path / "trap.pt")
    assert not Trap.sprung
    (tmp_path / "noise.pth").write_bytes(b"not a checkpoint")
    with pytest.raises(FileError, match=r"noise\.pth"):
        from_state_dict(ARCH, tmp_path / "noise.pth")


class Trap:
    """Notes on the class when it is unpickled."""

    sprung = False

    def __reduce__(self) -> Any:
        return _spring, ()


def _spring() -> Trap:
    Trap.sprung = True
    return Trap()


def test_torch_file_without_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "weights.pth"
    path.write_bytes(b"")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(FileError, match=r"weights\.pth: reading it needs torch \(pip install torch\)"):
        from_state_dict(ARCH, path)
