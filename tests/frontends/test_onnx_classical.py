"""Models of ai.onnx.ml, as scikit-learn and gradient boosting export them, against onnxruntime."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from support.noise import noise
from support.onnx_classical import FEATURES, ROWS, agree, ml, node, ort
from support.onnx_models import FLOAT, helper, numpy_helper, onnx, value

import bslite
from bslite.onnxruntime import InferenceSession

STRING, DOUBLE = onnx.TensorProto.STRING, onnx.TensorProto.DOUBLE


def forest(kind: str, targets: Sequence[int], seed: int = 0, positive: bool = False) -> dict[str, Any]:
    """Attributes of three trees of seven nodes; each leaf has a weight of each of some targets."""
    rng = np.random.default_rng(seed)
    modes = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT"]
    a: dict[str, Any] = {f"nodes_{k}": [] for k in (
        "treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids",
        "missing_value_tracks_true",
    )} | {f"{kind}_{k}": [] for k in ("treeids", "nodeids", "ids", "weights")}  # fmt: skip
    for tree in range(3):
        for n in range(7):
            inner = n < 3
            row = (tree, n, int(rng.integers(FEATURES)) if inner else 0, float(rng.normal()) * inner,
                   modes[int(rng.integers(4))] if inner else "LEAF", 2 * n + 1 if inner else 0,
                   2 * n + 2 if inner else 0, int(rng.integers(2)))  # fmt: skip
            for key, item in zip(list(a)[:8], row, strict=True):
                a[key].append(item)
            for target in () if inner else targets:
                weight = float(rng.normal())
                for key, item in zip(
                    list(a)[8:], (tree, n, target, abs(weight) if positive else weight), strict=True
                ):
                    a[key].append(item)
    return a


@pytest.mark.parametrize("labels", [("ints", 3), ("ints", 2), ("texts", 3), ("texts", 2)])
@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"])
@pytest.mark.parametrize("targets", ["each", "first"])
@pytest.mark.parametrize("positive", [False, True])
def test_classifiers_of_trees(labels: tuple[str, int], transform: str, targets: str, positive: bool) -> None:
    kind, count = labels
    if targets == "first" and count == 3:
        ids: Sequence[int] = (0, 2)  # a class that no leaf has
    else:
        ids = range(count) if targets == "each" else (0,)
    names = {"classlabels_strings": ["no", "yes", "may be"][:count]}
    given = names if kind == "texts" else {"classlabels_int64s": [0, 1, 7][:count]}
    tree = node("TreeEnsembleClassifier", ["x"], ["label", "score"], post_transform=transform,
                **forest("class", ids, positive=positive), **given)  # fmt: skip
    x = noise(9, FEATURES)
    x[2, 1] = x[5] = np.nan
    agree(ml([tree], ROWS, ["label", "score"]), x=x)


@pytest.mark.parametrize("base", [[0.25], [0.25, -0.5]])
@pytest.mark.parametrize("ids", [(0,), (0, 1)])
def test_two_classes_with_base_values(base: list[float], ids: Sequence[int]) -> None:
    tree = node("TreeEnsembleClassifier", ["x"], ["label", "score"], post_transform="LOGISTIC",
                base_values=base, classlabels_int64s=[0, 1], **forest("class", ids))  # fmt: skip
    agree(ml([tree], ROWS, ["label", "score"]), x=noise(9, FEATURES))


@pytest.mark.parametrize("how", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("kind", [FLOAT, DOUBLE])
def test_regressors_of_trees(how: str, kind: int) -> None:
    tree = node("TreeEnsembleRegressor", ["x"], ["y"], n_targets=2, aggregate_function=how,
                base_values=[0.5, -1.0], **forest("target", (0, 1)))  # fmt: skip
    made = ml([tree], [value("x", ["n", FEATURES], kind)], ["y"])
    x = (noise(9, FEATURES) * 3).astype(helper.tensor_dtype_to_np_dtype(kind))
    compiled = agree(made, x=x)
    agree(made, x=x[:1])
    assert compiled.pieces[0].startswith("NumPy: node 'y' (TreeEnsembleRegressor)")


def test_trees_of_the_newest_kind() -> None:
    """Two trees in float64: one of a member of a set, one that is a leaf alone."""
    f64, u8 = np.float64, np.uint8
    tree = node(
        "TreeEnsemble", ["x"], ["y"], n_targets=2, aggregate_function=1, post_transform=0,
        tree_roots=[0, 2], nodes_featureids=[1, 0, 0], nodes_truenodeids=[1, 0, 3],
        nodes_falsenodeids=[2, 1, 3], nodes_trueleafs=[0, 1, 1], nodes_falseleafs=[1, 1, 1],
        nodes_modes=numpy_helper.from_array(np.array([0, 6, 0], u8)),
        nodes_splits=numpy_helper.from_array(np.array([0.25, 0, 0], f64)),
        membership_values=numpy_helper.from_array(np.array([1.5, 3, np.nan], f64)),
        leaf_targetids=[0, 1, 0, 1],
        leaf_weights=numpy_helper.from_array(np.array([0.1, 0.2, 0.4, 0.8], f64)),
    )  # fmt: skip
    made = ml([tree], [value("x", ["n", 2], DOUBLE)], ["y"], 5)
    x = np.array([[1.5, 0], [2, 0.25], [3, -1], [1.5, 2]])
    got = bslite.compile(made)(x)[0]
    np.testing.assert_allclose(got, [[0.1, 0.8], [0, 1.0], [0.1, 0.8], [0.4, 0.8]], rtol=1e-15)


def test_a_pipeline_ends_in_a_dict_for_each_row() -> None:
    """Scaler, LinearClassifier, Normalizer and ZipMap: what skl2onnx writes for a logistic regression."""
    w = noise(3, FEATURES)
    nodes = [
        node("Imputer", ["x"], ["i"], imputed_value_floats=[0.5] * FEATURES, replaced_value_float=math.nan),
        node("Scaler", ["i"], ["s"], offset=[0.1] * FEATURES, scale=[2.0, 1.0, 0.5, 3.0]),
        node("LinearClassifier", ["s"], ["label", "raw"], coefficients=w.reshape(-1).tolist(), multi_class=1,
             intercepts=[0.1, 0.2, 0.3], classlabels_strings=["a", "b", "c"], post_transform="LOGISTIC"),
        node("Normalizer", ["raw"], ["p"], norm="L1"),
        node("ZipMap", ["p"], ["dicts"], classlabels_strings=["a", "b", "c"]),
    ]  # fmt: skip
    x = noise(5, FEATURES)
    x[1, 2] = np.nan
    agree(ml(nodes, ROWS, ["label", "p"]), x=x)
    made = ml(nodes, ROWS, ["dicts"])
    (got,), (want,) = (s.run(None, {"x": x}) for s in (InferenceSession(made), ort.InferenceSession(made)))
    assert [sorted(row) for row in got] == [sorted(row) for row in want]
    for ours, theirs in zip(got, want, strict=True):
        np.testing.assert_allclose([ours[k] for k in "abc"], [theirs[k] for k in "abc"], rtol=1e-6)


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC"])
def test_a_linear_classifier_of_one_score(transform: str) -> None:
    linear = node("LinearClassifier", ["x"], ["label", "p"], coefficients=noise(FEATURES).tolist(),
                  intercepts=[0.1], classlabels_ints=[3, 5], post_transform=transform)  # fmt: skip
    agree(ml([linear], ROWS, ["label", "p"]), x=noise(6, FEATURES))


TEXTS = np.array([["red", "blue"], ["green", "red"]], object)
SMALL: list[tuple[str, Any, dict[str, Any]]] = [
    ("LinearRegressor", noise(5, FEATURES), {"coefficients": [1.0] * 8, "targets": 2}),
    ("Normalizer", noise(5, FEATURES), {"norm": "L2"}),
    ("Normalizer", noise(5, FEATURES), {"norm": "MAX"}),
    ("Binarizer", noise(5, FEATURES), {"threshold": 0.25}),
    ("LabelEncoder", TEXTS, {"keys_strings": ["red", "blue"], "values_int64s": [4, 9], "default_int64": -7}),
    ("LabelEncoder", np.array([3, 5, 4]), {"keys_int64s": [3, 4], "values_strings": ["x", "y"]}),
    ("LabelEncoder", np.float32([0.5, 3]), {"keys_floats": [0.5, 9.0], "values_floats": [1.0, 2.5]}),
    ("CategoryMapper", TEXTS, {"cats_strings": ["red", "blue"], "cats_int64s": [1, 2], "default_int64": 0}),
    ("OneHotEncoder", TEXTS[0], {"cats_strings": ["red", "green", "blue"]}),
    ("OneHotEncoder", np.array([[1, 5]]), {"cats_int64s": [5, 1]}),
    ("FeatureVectorizer", noise(5, FEATURES), {"inputdimensions": [FEATURES]}),
    ("Scaler", np.arange(8).reshape(2, 4), {"offset": [1.0], "scale": [0.5]}),
]  # fmt: skip


@pytest.mark.parametrize(("op", "x", "given"), SMALL, ids=[c[0] for c in SMALL])
def test_preparations(op: str, x: Any, given: dict[str, Any]) -> None:
    kind = STRING if x.dtype == object else helper.np_dtype_to_tensor_dtype(x.dtype)
    agree(ml([node(op, ["x"], ["y"], **given)], [value("x", [None] * x.ndim, kind)], ["y"]), x=x)


def test_words_become_numbers_of_a_linear_model() -> None:
    """Texts split, counted and weighed: text classification as scikit-learn exports it."""
    counts = {"mode": "TFIDF", "min_gram_length": 1, "max_gram_length": 2, "max_skip_count": 0,
              "ngram_counts": [0, 2], "ngram_indexes": [1, 0, 2], "pool_strings": ["a", "b", "a", "c"],
              "weights": [0.5, 2.0, 3.0]}  # fmt: skip
    nodes = [
        helper.make_node(
            "StringNormalizer", ["x"], ["low"], case_change_action="LOWER", stopwords=["the"], locale="C"
        ),
        helper.make_node("TfIdfVectorizer", ["low"], ["t"], **counts),
        node("LinearRegressor", ["t"], ["y"], coefficients=[1.0, 10.0, 100.0], intercepts=[0.5], targets=1),
    ]
    agree(
        ml(nodes, [value("x", [None], STRING)], ["t", "y"]), x=np.array(["A", "The", "c", "B", "a"], object)
    )


def test_trees_that_are_none_are_refused() -> None:
    given = forest("target", (0,))
    given["nodes_truenodeids"][0] = 0
    loop = ml([node("TreeEnsembleRegressor", ["x"], ["y"], n_targets=1, **given)], ROWS, ["y"])
    x = noise(9, FEATURES) * 9
    with pytest.raises(bslite.SpecError, match="below itself"):
        bslite.compile(loop)(x)
    given["nodes_truenodeids"][0] = 40
    lost = ml([node("TreeEnsembleRegressor", ["x"], ["y"], n_targets=1, **given)], ROWS, ["y"])
    with pytest.raises(bslite.SpecError, match="not there"):
        bslite.compile(lost)(x)


def test_what_trees_do_not_take() -> None:
    made = ml(
        [node("TreeEnsembleRegressor", ["x"], ["y"], n_targets=1, **forest("target", [0]))], ROWS, ["y"]
    )
    compiled = bslite.compile(made)
    x = noise(5, FEATURES)
    compiled(x)
    with pytest.raises(bslite.InputError, match="'x' is float64, expected float32"):
        compiled(x.astype(np.float64))
    with pytest.raises(bslite.InputError, match="a tree asks for feature"):
        compiled(x[:, :1])


def exported(outputs: Sequence[str], *behind: Any) -> bytes:
    """A classifier of trees with nodes behind it, as converters write them."""
    tree = node("TreeEnsembleClassifier", ["x"], ["l", "p"], classlabels_int64s=[0, 1],
                **forest("class", [0, 1]))  # fmt: skip
    held = {"one": np.ones(1, np.float32), "to": np.array([-1, 1, 2])}
    return ml([tree, *behind], ROWS, outputs, holds=held)


def test_what_exporters_put_behind_trees_is_no_engines() -> None:
    """Other names, a cast of labels to what they are, one factor: a few numbers, that NumPy computes."""
    made = exported(
        ["label", "score"],
        helper.make_node("Identity", ["l"], ["l2"]), helper.make_node("Cast", ["l2"], ["label"], to=7),
        helper.make_node("Identity", ["p"], ["p2"]), helper.make_node("Mul", ["p2", "one"], ["p3"]),
        helper.make_node("Reshape", ["p3", "to"], ["score"]),
    )  # fmt: skip
    agree(made, x=noise(9, FEATURES))
    compiled = bslite.compile(made)
    few, many = noise(5, FEATURES), noise(5000, FEATURES)
    want = compiled(few).score.tobytes()
    assert compiled.pieces[1] == "NumPy, on a few numbers: 5 nodes"
    all_of_them = compiled(many).score
    assert compiled(few).score.tobytes() == want
    assert compiled(many[:7]).score.tobytes() == all_of_them[:7].tobytes()


def test_answers_under_two_names_are_two_arrays() -> None:
    again = [helper.make_node("Identity", ["p"], [name]) for name in ("one_name", "another")]
    compiled = bslite.compile(exported(["p", "one_name", "another"], *again))
    for _ in range(3):
        made = compiled(noise(2, FEATURES)).tuple()
        want = made[0].copy()
        for y in made[1:]:
            y += 1
        assert made[0].tobytes() == want.tobytes()
        assert made[1].tobytes() == made[2].tobytes()


def test_two_operations_on_floats_are_the_engines() -> None:
    """It may round them together."""
    behind = [helper.make_node("Mul", ["p", "p"], ["q"]), helper.make_node("Add", ["q", "one"], ["score"])]
    compiled = bslite.compile(exported(["score"], *behind))
    compiled(noise(2, FEATURES))
    assert compiled.pieces[1] == "engine: 2 nodes"


def test_warnings_of_numpy_stay_inside() -> None:
    """Also from the second call on, of sums of single trees and base values beyond float32."""
    far = {"target_weights": [3e38] * 12, "base_values": [3e38]}
    given = {k: v for k, v in forest("target", [0]).items() if k not in far}
    one = {"n_targets": 1, "aggregate_function": "MAX", **given, **far}
    made = ml([node("TreeEnsembleRegressor", ["x"], ["y"], **one)], ROWS, ["y"])
    compiled, x = bslite.compile(made), noise(3, FEATURES)
    for _ in range(3):
        assert np.isposinf(compiled(x).y).all()
    classes = {"base_values": [3e38, 3e38], "class_weights": [3e38] * 24, "post_transform": "SOFTMAX_ZERO"}
    given = {k: v for k, v in forest("class", [0, 1]).items() if k not in classes}
    made = ml([node("TreeEnsembleClassifier", ["x"], ["label", "p"], classlabels_int64s=[0, 1], **given,
                    **classes)], ROWS, ["label", "p"])  # fmt: skip
    compiled = bslite.compile(made)
    assert compiled(x).p.tobytes() == compiled(x).p.tobytes()


def test_no_trees_and_too_few_splits() -> None:
    """What is left of a forest without trees are its base values."""
    f64, u8 = np.float64, np.uint8
    given: dict[str, Any] = {
        "tree_roots": [], "nodes_featureids": [], "nodes_truenodeids": [], "nodes_falsenodeids": [],
        "nodes_trueleafs": [], "nodes_falseleafs": [], "leaf_targetids": [0],
        "nodes_modes": numpy_helper.from_array(np.array([], u8)),
        "nodes_splits": numpy_helper.from_array(np.array([], f64)),
        "leaf_weights": numpy_helper.from_array(np.array([1.0], f64)),
    }  # fmt: skip
    tree = helper.make_node("TreeEnsemble", ["x"], ["y"], domain="ai.onnx.ml", n_targets=1)
    for name, content in given.items():
        kind = onnx.AttributeProto.INTS if isinstance(content, list) else None
        tree.attribute.append(helper.make_attribute(name, content, attr_type=kind))
    x = [value("x", ["n", 2], DOUBLE)]
    assert bslite.compile(ml([tree], x, ["y"], 5))(np.ones((3, 2)))[0].tolist() == [[0], [0], [0]]
    more = {
        "tree_roots": [0], "nodes_featureids": [0], "nodes_truenodeids": [0], "nodes_falsenodeids": [0],
        "nodes_trueleafs": [1], "nodes_falseleafs": [1],
        "nodes_modes": numpy_helper.from_array(np.array([0], u8)),
    }  # fmt: skip
    short = node("TreeEnsemble", ["x"], ["y"], n_targets=1, **given | more)
    with pytest.raises(bslite.SpecError, match="nodes_splits has 0 entries for 1 nodes"):
        bslite.compile(ml([short], x, ["y"], 5))(np.ones((3, 2)))


def test_calls_of_kinds_that_ran_before_are_the_same() -> None:
    """Host nodes one after the other, with a constant that one reads, as calls go on and sizes change."""
    nodes = [
        node("Scaler", ["x"], ["s"], offset=[0.5], scale=[2.0]),
        node("TreeEnsembleClassifier", ["s"], ["label", "p"], classlabels_strings=["a", "b"],
             post_transform="LOGISTIC", **forest("class", [0])),
        node("ArrayFeatureExtractor", ["p", "one"], ["second"]),
    ]  # fmt: skip
    made = onnx.load_from_string(ml(nodes, ROWS, ["label", "second"]))
    made.graph.initializer.append(numpy_helper.from_array(np.array([1]), "one"))
    data = made.SerializeToString()
    session, compiled = ort.InferenceSession(data), bslite.compile(data)
    for count in (3, 3, 1, 3, 7):
        x = noise(count, FEATURES)
        label, second = session.run(None, {"x": x})
        got = compiled(x)
        assert got[0].tolist() == label.tolist()
        np.testing.assert_allclose(got[1], second, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT"])
@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("base", [False, True])
@pytest.mark.parametrize("targets", ["each", "first"])
def test_scores_of_the_kernel_are_those_of_numpy(
    transform: str, count: int, base: bool, targets: str
) -> None:
    """NumPy computes them in float64: the labels are the same, and scores but for the last rounding."""
    said = range(count) if targets == "each" else range(1)
    given = forest("class", list(said), seed=3) | ({"base_values": [0.25] * count} if base else {})
    made = ml(
        [node("TreeEnsembleClassifier", ["x"], ["label", "p"], classlabels_int64s=[*range(7, 7 + count)],
              post_transform=transform, **given)], ROWS, ["label", "p"],
    )  # fmt: skip
    x = noise(40, FEATURES)
    x[::3, 1] = np.nan
    quick, exact = (bslite.compile(made, device=d)(x) for d in ("cpu", "reference64"))
    assert quick.label.tolist() == exact.label.tolist()
    assert quick.p.dtype == np.float32
    np.testing.assert_allclose(quick.p, exact.p.astype(np.float32), rtol=2**-23, atol=0)
    alone = [bslite.compile(made)(row[None]).p for row in x[:3]]
    assert np.concatenate(alone).tobytes() == quick.p[:3].tobytes()


def test_no_rows() -> None:
    for kind, op, more in (
        ("target", "Regressor", {"n_targets": 1}),
        ("class", "Classifier", {"classlabels_int64s": [0, 1]}),
    ):
        made = ml([node(f"TreeEnsemble{op}", ["x"], ["y"], **more, **forest(kind, [0]))], ROWS, ["y"])
        compiled = bslite.compile(made)
        assert [len(compiled(noise(n, FEATURES)).y) for n in (2, 0, 3)] == [2, 0, 3]


@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
@pytest.mark.parametrize("labels", [[7, 3, 5], [4, 9]])
def test_linear_operators_of_float32_are_one_piece_with_what_is_around(norm: str, labels: list[int]) -> None:
    """Scaler, classifier, the norm of its scores; one score of two classes is the second's."""
    count = len(labels) if len(labels) > 2 else 1
    weights = {"coefficients": noise(count * FEATURES).tolist(), "intercepts": noise(count, seed=1).tolist()}
    nodes = [
        node("Scaler", ["x"], ["s"], offset=noise(FEATURES).tolist(), scale=[0.5, 2.0, 1.0, 0.25]),
        node(
            "LinearClassifier",
            ["s"],
            ["y", "p"],
            classlabels_ints=labels,
            post_transform="LOGISTIC",
            **weights,
        ),
        helper.make_node("Mul", ["p", "p"], ["q"]),
        node("Normalizer", ["q"], ["z"], norm=norm),
    ]
    made = ml(nodes, [value("x", ["n", FEATURES])], ["y", "z"])
    for rows in (1, 5):
        compiled = agree(made, x=noise(rows, FEATURES))
        assert compiled.pieces == ["engine: 4 nodes"]


def test_a_row_of_zeros_has_no_norm() -> None:
    made = ml([node("Normalizer", ["x"], ["y"], norm="L1")], [value("x", ["n", FEATURES])], ["y"])
    agree(made, x=np.array([[0] * FEATURES, [1, -2, 0, 1]], np.float32))
