"""What `from_onnx` says of a model that it cannot convert: all at once, what hides behind others too."""

from typing import Any

import numpy as np
import pytest
from support.noise import noise
from support.onnx_models import FLOAT, INT64, helper, model, value

from bslite import UnsupportedError, from_onnx
from bslite.frontends.onnx.read import NotConverted
from bslite.onnx import backend
from bslite.onnx.load import IN_PIECES, INSTEAD

node = helper.make_node
X = [value("x", ["n", 4, 4])]


def listed(
    nodes: Any, inputs: Any = X, outputs: Any = ("y",), advice: str = INSTEAD, **kwargs: Any
) -> list[str]:
    """The lines between the first of the error that ``from_onnx`` raises and the last, its ``advice``."""
    with pytest.raises(UnsupportedError) as caught:
        from_onnx(model(nodes, inputs, list(outputs), **kwargs))
    first, *lines, last = str(caught.value).splitlines()
    assert first == "model 'small' needs what bslite does not have:"
    assert last == advice
    return lines


def test_one_behind_the_other() -> None:
    """The operators' results are of unknown shape: what reads them is looked up by name."""
    nodes = [
        node("Frob", ["x"], ["a"], name="first"),
        node("Frob", ["a"], ["b"], name="second"),
        node("Relu", ["b"], ["r"]),
        node("Nicate", ["x"], ["c"]),
        node("Add", ["r", "c"], ["d"]),
        node("Det", ["d"], ["y"], name="third"),
    ]
    assert listed(nodes) == [
        "  2 x Frob: no operator of that name; at first, second",
        "  1 x Nicate: no operator of that name; at c",
        "  1 x Det: bslite has no such operator; at third",
    ]


def test_forms_behind_a_result_whose_shape_onnx_infers() -> None:
    """Det makes [n]; the forms of what reads it are looked at, and the share of the flops is known."""
    nodes = [
        node("Det", ["x"], ["d"], name="det"),
        node("Cast", ["d"], ["e"], to=11, name="wide"),
        node("Relu", ["e"], ["f"], name="relu"),
        node("MatMul", ["x", "w"], ["m"]),
        node("Det", ["m"], ["g"], name="again"),
        node("Add", ["d", "g"], ["h"]),
    ]
    stored = {"w": noise(4, 100)[:, :4].copy()}
    lines = listed(nodes, outputs=["f", "h"], advice=IN_PIECES, stored=stored)
    assert lines[0] == "  2 x Det: bslite has no such operator; at det, again"
    assert sorted(lines[1:3]) == [
        "  1 x Cast: to float64; at wide",
        "  1 x Relu: of float64; bslite has float32, int64, int32, bool, uint8, int8; at relu",
    ]
    assert len(lines) == 4
    assert "of the model's flops" in lines[3]


def test_the_file_may_say_the_shapes_of_what_is_in_nobodys_set() -> None:
    """An operator of another domain, with and without what it makes being declared."""
    nodes = [
        node("Fused", ["x"], ["a"], domain="com.example", name="fused"),
        node("MaxPool", ["a"], ["b", "places"], kernel_shape=[2], name="pool"),
        node("Gather", ["places", "i"], ["y"], name="pick"),
    ]
    proto = model(nodes, X, ["y", "b"], {"i": np.int64(0)})
    proto.opset_import.append(helper.make_opsetid("com.example", 1))
    for known in (False, True):
        if known:
            proto.graph.value_info.append(value("a", ["n", 4, 4]))
        with pytest.raises(UnsupportedError) as caught:
            from_onnx(proto)
        lines = str(caught.value).splitlines()
        assert "  1 x Fused: of the operator set 'com.example'; at fused" in lines
        assert any("places" in line or "MaxPool" in line for line in lines) is known


def test_consequences_are_not_reported() -> None:
    """A shape that an unsupported node computes, sizes that do not fit its stand-in: only the node."""
    nodes = [
        node("Unique", ["i"], ["u"], name="unique"),
        node("Reshape", ["x", "u"], ["r"], name="reshape"),
        node("Relu", ["r"], ["y"]),
    ]
    inputs = [*X, value("i", [3], INT64)]
    assert listed(nodes, inputs, advice=IN_PIECES) == ["  1 x Unique: bslite has no such operator; at unique"]
    with pytest.raises(NotConverted) as caught:
        from_onnx(model(nodes, inputs, ["y"]))
    assert caught.value.roots == frozenset()
    assert caught.value.nodes == {"unique"}

    wrong = [node("Fused", ["x"], ["a"], domain="com.example"), node("MatMul", ["a", "w"], ["y"])]
    proto = model(wrong, X, ["y"], {"w": noise(4, 4)})
    proto.opset_import.append(helper.make_opsetid("com.example", 1))
    proto.graph.value_info.append(value("a", [1, 4, 3]))  # a lie
    with pytest.raises(UnsupportedError, match=r"1 x Fused: of the operator set 'com\.example'; at a"):
        from_onnx(proto)


def test_within_functions_that_the_model_brings_along() -> None:
    body = helper.make_function(
        "own", "Twice", ["a"], ["c"],
        [node("Det", ["a"], ["b"], name="det"), node("Frob", ["b"], ["c"], name="frob")],
        [helper.make_opsetid("", 17)],
    )  # fmt: skip
    nodes = [
        node("Twice", ["x"], ["p"], domain="own", name="one"),
        node("Twice", ["p"], ["y"], domain="own", name="two"),
    ]
    assert sorted(listed(nodes, functions=[body])) == [
        "  2 x Det: bslite has no such operator; at one/det, two/det",
        "  2 x Frob: no operator of that name; at one/frob, two/frob",
    ]


@pytest.mark.usefixtures("without_det")
def test_the_evaluator_is_given_all_of_them_at_the_first_run() -> None:
    """Nodes that depend on each other are found in one look, and one warning names them."""
    nodes = [
        node("Relu", ["x"], ["r"]),
        node("Det", ["r"], ["d"], name="det"),
        node("Exp", ["d"], ["e"]),
        node("Unique", ["e"], ["y"], name="unique"),
    ]
    rep = backend.prepare(model(nodes, [value("x", [2, 3, 3], FLOAT)], ["y"]), fallback="warn")
    with pytest.warns(UserWarning, match="reference evaluator runs these") as caught:
        rep.run([noise(2, 3, 3)])
    assert len(caught) == 1
    assert "Det" in str(caught[0].message)
    assert "Unique" in str(caught[0].message)
