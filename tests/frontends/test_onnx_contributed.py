"""Operators in NumPy between pieces, and those that onnxruntime has under names of its own: against it.

Regions of interest, deformable convolutions, rotary embedding, attention of language models, random numbers.
"""

import tracemalloc
from typing import Any

import numpy as np
import pytest
from support.check import rel_l2
from support.noise import noise
from support.onnx_models import helper, inputs_like, model, untyped
from support.onnx_peer import agree, ort

import bslite
import bslite.onnxruntime
from bslite.onnx.host import generation
from bslite.onnx.host.random import multinomial

MS = "com.microsoft"


def made_of(nodes: list[Any], feed: dict[str, Any], outs: list[str], opset: int, stored: Any = ()) -> Any:
    return model(nodes, inputs_like(feed), untyped(*outs), dict(stored), opset, domains={MS: 1})


def both(
    op: str, feed: dict[str, Any], outs: int = 1, opset: int = 17, domain: str = MS, stored: Any = (),
    **given: Any,
) -> bslite.CompiledModel:  # fmt: skip
    """One node by bslite and onnxruntime; inputs whose names begin with "_" are left out."""
    names = [f"y{i}" for i in range(outs)]
    reads = [n if not n.startswith("_") else "" for n in (*feed, *dict(stored))]
    feed = {n: x for n, x in feed.items() if x is not None}
    node = helper.make_node(op, reads, names, domain=domain, **given)
    return agree(made_of([node], feed, names, opset, stored), feed)


REGIONS = np.array([[0, 0, 9, 9], [-3, 2, 25, 30], [5, 6, 7, 6.5]], np.float32)


@pytest.mark.parametrize("opset", [10, 16])
@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("ratio", [0, 2])
def test_regions_of_images(opset: int, mode: str, ratio: int) -> None:
    feed = {"x": noise(2, 3, 12, 15), "r": REGIONS, "b": np.array([0, 1, 1])}
    how = {"mode": mode, "sampling_ratio": ratio, "output_height": 4, "output_width": 3, "spatial_scale": 0.5}
    compiled = both("RoiAlign", feed, opset=opset, domain="", **how)
    assert compiled.pieces == ["NumPy: node 'y0' (RoiAlign): bslite has no such operator"]
    with pytest.raises(bslite.InputError, match="a region of image 2, there are 2"):
        compiled(feed | {"b": np.array([0, 2, 1])})
    with pytest.raises(bslite.InputError, match="a region of image -1, there are 2"):
        compiled(feed | {"b": np.array([0, -1, 1])})


@pytest.mark.parametrize("mode", ["avg", "max"])
def test_regions_without_a_point(mode: str) -> None:
    rows = np.array([[5, 5, 5, 5], [6, 2, 6, 9], [1, 1, 4, 4]], np.float32)
    feed = {"x": noise(1, 2, 8, 8), "r": rows, "b": np.zeros(3, np.int64)}
    both("RoiAlign", feed, opset=16, domain="", mode=mode, output_height=2, output_width=2)


def test_largest_of_regions() -> None:
    """Corners are rounded as C does: halves away from zero, also below it."""
    rows = np.concatenate([np.array([[0], [1], [1]], np.float32), REGIONS], 1)
    feed = {"x": noise(2, 3, 12, 15), "r": rows}
    both("MaxRoiPool", feed, opset=11, domain="", pooled_shape=[3, 4], spatial_scale=0.5)


@pytest.mark.parametrize("groups", [1, 2])
def test_deformed_convolutions(groups: int) -> None:
    feed = {
        "x": noise(2, 4, 9, 8), "w": noise(6, 4 // groups, 3, 3), "o": noise(2, 18 * groups, 5, 8) * 1.5,
        "b": noise(6), "m": noise(2, 9 * groups, 5, 8),
    }  # fmt: skip
    how = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 1]}
    both("DeformConv", feed, opset=19, domain="", group=groups, offset_group=groups, **how)


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean"])
def test_distances(metric: str) -> None:
    both("CDist", {"a": noise(7, 4) + 2, "b": noise(5, 4)}, metric=metric)


def test_inverse_and_norm_of_images() -> None:
    both("Inverse", {"x": noise(3, 4, 4) + 3 * np.eye(4, dtype=np.float32)})
    both("GlobalLpPool", {"x": noise(2, 3, 5, 4)}, domain="", p=3)


def test_what_onnx_has_too() -> None:
    assert both("Trilu", {"x": noise(4, 5)}, upper=0).pieces == ["engine: 1 nodes"]
    both("GatherND", {"x": noise(4, 5), "i": np.array([[1, 2], [0, 3]])})
    both("Range", {"a": np.array(1, np.float32), "b": np.array(6, np.float32)})
    both("Pad", {"x": noise(4, 5)}, stored={"p": np.array([0, 1, 2, 0])})
    both("ExpandDims", {"x": noise(4, 5)}, stored={"a": np.array(1, np.int32)})
    both("GridSample", {"x": noise(1, 2, 4, 5), "g": noise(1, 3, 3, 2)})
    both("Unique", {"x": np.array([3, 1, 3, 2, 1], np.float32)}, outs=3)


def test_layer_norm_before_onnx_had_it() -> None:
    """onnxruntime's optimiser writes it into ONNX's own set, at any opset."""
    stored = {"g": noise(8), "b": noise(8)}
    compiled = both("LayerNormalization", {"x": noise(2, 5, 8)}, opset=11, domain="", stored=stored, axis=-1)
    assert compiled.pieces == ["engine: 1 nodes"]


def test_the_facade_takes_operators_that_onnxruntime_writes_as_onnx_s() -> None:
    node = helper.make_node("SimplifiedLayerNormalization", ["x", "g"], ["y"])
    feed = {"x": noise(2, 8)}
    made = made_of([node], feed, ["y"], 12, {"g": noise(8)}).SerializeToString()
    ours, theirs = (m.InferenceSession(made).run(None, feed)[0] for m in (bslite.onnxruntime, ort))
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)


TABLES = {"c": np.cos(noise(20, 8)), "s": np.sin(noise(20, 8))}
PLACES = np.array([[0, 1, 2, 3, 4], [4, 5, 6, 7, 8]])


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("heads", ["side by side", "apart", "wider"])
def test_rotary_embedding(interleaved: int, heads: str) -> None:
    x = {"side by side": noise(2, 5, 48), "apart": noise(2, 3, 5, 16), "wider": noise(2, 5, 48)}[heads]
    given = {"num_heads": 2, "rotary_embedding_dim": 16} if heads == "wider" else {}
    for places in (PLACES, np.array([3])):
        feed = {"x": x, "p": places}
        both("RotaryEmbedding", feed, stored=TABLES, interleaved=interleaved, **given)


@pytest.mark.parametrize("given", [{}, {"local_window_size": 2}, {"softcap": 5.0}, {"scale": 0.3}])
@pytest.mark.parametrize("case", [(5, 0, (4, 4)), (1, 6, (6, 6)), (1, 6, (6, 4)), (3, 4, (6,))])
@pytest.mark.parametrize("interleaved", [0, 1])
def test_group_query_attention(case: Any, given: dict[str, Any], interleaved: int) -> None:
    rows, held, lengths = case
    packed = rows == 3
    n = len(lengths)
    feed: dict[str, Any] = {"q": noise(n, rows, 128 if packed else 64)}
    feed |= {"_k": None, "_v": None} if packed else {"k": noise(n, rows, 32), "v": noise(n, rows, 32)}
    feed |= {"pk": noise(n, 2, held, 16), "pv": noise(n, 2, held, 16)}
    feed |= {"l": np.array(lengths, np.int32), "t": np.array([max(lengths) + 1], np.int32)}
    how = {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1, "rotary_interleaved": interleaved}
    both("GroupQueryAttention", feed, outs=3, stored=TABLES, **how, **given)


def test_a_prompt_is_the_engine_s_and_for_the_reference_numpy_s(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the oracle would be what it judges."""
    runs: list[int] = []
    monkeypatch.setattr(generation, "run", lambda *a, **how: (runs.append(1), bslite.run(*a, **how))[1])
    rows = 40
    feed = {"q": noise(1, rows, 64), "k": noise(1, rows, 32), "v": noise(1, rows, 32)}
    feed |= {n: noise(1, 2, 0, 16) for n in ("pk", "pv")}
    feed |= {"l": np.array([rows - 1], np.int32), "t": np.array([rows], np.int32)}
    how = {"num_heads": 4, "kv_num_heads": 2}
    node = helper.make_node("GroupQueryAttention", list(feed), ["y", "pk2", "pv2"], domain=MS, **how)
    compiled, made = bslite.compile(made_of([node], feed, ["y"], 17)), {}
    for backend, engine in (("cpu", 1), ("reference", 0), ("reference64", 0)):
        runs.clear()
        made[backend] = bslite.run(compiled, list(feed.values()), backend=backend)
        assert len(runs) == engine, backend
    assert 0 < rel_l2(made["cpu"], made["reference64"]) < 1e-6


def test_heads_that_those_of_keys_do_not_divide_are_an_error() -> None:
    feed = {"q": noise(1, 20, 80), "k": noise(1, 20, 32), "v": noise(1, 20, 32)}
    feed |= {n: noise(1, 2, 0, 16) for n in ("pk", "pv")}
    feed |= {"l": np.array([19], np.int32), "t": np.array([20], np.int32)}
    how = {"num_heads": 5, "kv_num_heads": 2}
    node = helper.make_node("GroupQueryAttention", list(feed), ["y", "pk2", "pv2"], domain=MS, **how)
    with pytest.raises(bslite.BsliteError, match="5 heads, which 2 of keys do not divide"):
        bslite.compile(made_of([node], feed, ["y"], 17))(feed)


@pytest.mark.parametrize("kinds", [("PER_TENSOR", "NONE"), ("NONE", "PER_CHANNEL")])
def test_a_past_of_integers_is_refused(kinds: tuple[str, str]) -> None:
    feed = {n: noise(1, 2, 32) for n in "qkv"} | {n: noise(1, 2, 0, 16) for n in ("pk", "pv")}
    feed |= {"l": np.array([1], np.int32), "t": np.array([2], np.int32)}
    how = {"num_heads": 2, "kv_num_heads": 2, "k_quant_type": kinds[0], "v_quant_type": kinds[1]}
    node = helper.make_node("GroupQueryAttention", list(feed), ["y", "pk2", "pv2"], domain=MS, **how)
    with pytest.raises(bslite.UnsupportedError, match="a past of integers"):
        bslite.compile(made_of([node], feed, ["y"], 17))(feed)


def test_runs_of_words_are_not_written_again() -> None:
    feed = {"i": np.array([[1, 2, 3, 1, 2], [4, 4, 4, 4, 4]]), "s": noise(2, 9)}
    made = made_of(
        [helper.make_node("NGramRepeatBlock", list(feed), ["y"], domain=MS, ngram_size=3)], feed, ["y"], 17
    )
    (want,) = ort.InferenceSession(made.SerializeToString()).run(None, feed)
    assert np.array_equal(bslite.compile(made)(feed)["y"], want)


def test_drawn_classes_take_little_memory() -> None:
    """Far less than a comparison for every row, sample and class: 32 MB."""
    chances = np.log(np.arange(1, 1001, dtype=np.float32))[None].repeat(8, 0)
    tracemalloc.start()
    drawn = multinomial(chances, cache={}, dtype=7, sample_size=4000, seed=1.0)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 4e6
    assert abs(drawn.mean() / 666 - 1) < 0.02  # classes are as likely as their numbers are large
    assert drawn.std(1).min() > 200


def test_random_numbers_are_new_at_each_run_and_of_their_distribution() -> None:
    node = helper.make_node
    nodes = [
        node("RandomNormalLike", ["x"], ["n"], mean=2.0, scale=3.0),
        node("RandomUniform", [], ["u"], shape=[4, 5000], low=-1.0, high=3.0),
        node("Multinomial", ["p"], ["m"], sample_size=20000),
        node("Bernoulli", ["q"], ["b"]),
        node("RandomNormal", [], ["own"], shape=[3], seed=5.0),
    ]
    p = np.log(np.array([[0.1, 0.2, 0.7]], np.float32)) + 3
    feed = {"x": noise(4, 5000), "p": p, "q": np.full((4, 5000), 0.25, np.float32)}
    outs = ["n", "u", "m", "b", "own"]
    made = made_of(nodes, feed, outs, 15)
    compiled = bslite.compile(made)
    bslite.onnxruntime.set_seed(7)
    first, second = compiled(feed), compiled(feed)
    assert [first[o].dtype for o in outs] == [np.float32, np.float32, np.int32, np.float32, np.float32]
    assert (abs(first["n"].mean() - 2), abs(first["n"].std() - 3)) < (0.1, 0.1)
    assert -1 <= first["u"].min() < first["u"].max() <= 3
    assert abs(first["u"].mean() - 1) < 0.05
    np.testing.assert_allclose(np.bincount(first["m"][0]) / 20000, [0.1, 0.2, 0.7], atol=0.02)
    assert abs(first["b"].mean() - 0.25) < 0.02
    assert not any(np.array_equal(first[o], second[o]) for o in outs)
    bslite.onnxruntime.set_seed(7)
    again = bslite.compile(made)(feed)
    assert all(np.array_equal(first[o], again[o]) for o in outs)


def test_a_model_that_draws_numbers_is_not_called_wrong_without_a_word() -> None:
    x = noise(2, 3)
    nodes = [helper.make_node("RandomNormalLike", ["x"], ["n"]), helper.make_node("Add", ["x", "n"], ["y"])]
    found = bslite.verify(bslite.compile(made_of(nodes, {"x": x}, ["y"], 15)), x)
    assert not found.passed
    assert "does the model draw numbers?" in found.summary()
    same = bslite.verify(bslite.compile(made_of(nodes[1:], {"x": x, "n": x}, ["y"], 15)), [x, x])
    assert same.passed
    assert "draw" not in same.summary()


@pytest.mark.parametrize("how", [{"ceil_mode": 1}, {"pads": [1, 0, 0, 1]}, {"auto_pad": "SAME_LOWER"}])
@pytest.mark.parametrize("order", [0, 1])
def test_a_pool_that_says_where_its_results_came_from(how: dict[str, Any], order: int) -> None:
    steps = {"kernel_shape": [3, 2], "strides": [2, 3], "storage_order": order}
    made = both("MaxPool", {"x": np.round(noise(2, 3, 8, 9))}, 2, domain="", **steps, **how)
    assert made.pieces[0].startswith("NumPy: node")


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
def test_the_extreme_of_integers(op: str) -> None:
    numbers = (noise(4, 7, 5) * 3).astype(np.int32)
    for dtype in (np.int32, np.int64):
        feed = {"x": numbers.astype(dtype)}
        for last in (0, 1):
            made = both(op, feed, domain="", axis=1, keepdims=last, select_last_index=last)
            assert made.pieces == ["engine: 1 nodes"]


def test_statistics_of_a_batch() -> None:
    feed = {"x": noise(6, 3, 4), "s": noise(3), "b": noise(3), "m": noise(3), "v": np.abs(noise(3))}
    both("BatchNormalization", feed, 3, domain="", training_mode=1, momentum=0.8)
    norm = helper.make_node("BatchNormalization", list(feed), ["y", "rm", "rv"], training_mode=1)
    alone = made_of([norm, helper.make_node("Relu", ["y"], ["z"])], feed, ["z"], 17)
    assert agree(alone, feed).pieces == ["engine: 2 nodes"]


@pytest.mark.parametrize("dtype", [np.uint16, np.int16])
def test_integers_of_16_bits_at_the_border(dtype: type) -> None:
    point = np.array(77, dtype)
    numbers = (noise(2, 5) * 9000).astype(dtype)
    both("DequantizeLinear", {"x": numbers, "s": np.array(0.25, np.float32), "z": point})
    both("QuantizeLinear", {"x": noise(2, 5) * 40, "s": np.array(1e-3, np.float32), "z": point})
    columns = np.linspace(0.1, 0.5, 5, dtype=np.float32)
    both("DequantizeLinear", {"x": numbers, "s": columns, "z": np.arange(5, dtype=dtype)}, axis=1)


def test_convolution_of_integers_with_the_channels_last() -> None:
    stored = {
        "xs": np.float32(0.02), "xz": np.uint8(120), "w": (noise(4, 3, 3, 3) * 40 + 128).astype(np.uint8),
        "ws": np.float32(0.01), "wz": np.uint8(128), "ys": np.float32(0.05), "yz": np.uint8(100),
    }  # fmt: skip
    x = (noise(2, 6, 7, 3) * 40 + 120).astype(np.uint8)
    both("QLinearConv", {"x": x}, stored={k: np.asarray(v) for k, v in stored.items()}, channels_last=1)


@pytest.mark.parametrize("masked", [True, False])
def test_embeddings_say_how_long_the_sequences_are(masked: bool) -> None:
    ids, mask = np.array([[3, 1, 4, 1], [5, 9, 2, 6]], np.int32), np.array([[1, 1, 1, 0], [1] * 4], np.int32)
    feed = {"i": ids, "s": ids % 2, "w": noise(10, 8), "p": noise(6, 8), "t": noise(2, 8), "g": noise(8)}
    both(
        "EmbedLayerNormalization",
        feed | {"b": noise(8), "k" if masked else "_k": mask if masked else None},
        2,
    )


#: Shapes, and the sizes that they become: images of channels second, last and alone, lines, a volume.
RESIZED = [
    ((1, 3, 6, 7), (1, 3, 13, 5)), ((2, 6, 7, 3), (2, 4, 11, 3)), ((6, 7), (9, 4)),
    ((1, 2, 1, 9), (1, 2, 1, 5)), ((1, 2, 3, 4, 5), (1, 2, 5, 7, 9)), ((2, 3, 8), (2, 3, 5)),
]  # fmt: skip


@pytest.mark.parametrize("kind", [np.uint8, np.int8, np.int32])
@pytest.mark.parametrize("mode", ["half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"])
def test_whole_numbers_resized_are_cut_as_onnxruntime_cuts_them(kind: Any, mode: str) -> None:
    for have, want in RESIZED:
        ends = np.iinfo(np.int16 if kind == np.int32 else kind)
        feed = {"x": np.random.default_rng(0).integers(ends.min, ends.max + 1, have).astype(kind)}
        how = {"mode": "linear", "coordinate_transformation_mode": mode}
        for stored in ({"s": np.array(want)}, {"s": np.float32(np.divide(want, have) * 1.03)}):
            if stored["s"].dtype == np.float32:
                stored["s"][np.equal(want, have)] = 1
            reads = ["x", "", "s"] if stored["s"].dtype == np.float32 else ["x", "", "", "s"]
            made = made_of([helper.make_node("Resize", reads, ["y"], **how)], feed, ["y"], 13, stored)
            theirs = ort.InferenceSession(made.SerializeToString()).run(None, feed)[0]
            np.testing.assert_array_equal(bslite.compile(made)(feed)[0], theirs, strict=True)


def test_sizes_that_change_do_not_take_a_resize_from_the_engine() -> None:
    """It has a function in NumPy for whole numbers alone."""
    node = helper.make_node("Resize", ["x", "", "", "s"], ["y"], mode="linear")
    feed = {"x": noise(1, 1, 4, 5), "s": np.array([1, 1, 5, 5])}
    compiled = bslite.compile(made_of([node], feed, ["y"], 13))
    for size in range(3, 12):
        assert compiled(feed["x"], np.array([1, 1, size, 2 * size]))[0].shape == (1, 1, size, 2 * size)
    assert all(line.startswith("engine") for line in compiled.pieces)
    whole = {"x": np.zeros((1, 1, 4, 5), np.uint8)}
    cubic = helper.make_node("Resize", ["x", "", "", "s"], ["y"], mode="cubic")
    refused = bslite.compile(made_of([cubic], whole, ["y"], 13, {"s": feed["s"]}))
    with pytest.raises(bslite.UnsupportedError, match="mode 'cubic' of uint8"):
        refused(whole)


@pytest.mark.parametrize("rows", [3, 20])
@pytest.mark.parametrize("sinks", [False, True])
def test_scores_of_keys_without_a_value(rows: int, sinks: bool) -> None:
    """A key more for each head, whose score is 0 or given, and whose value is none."""
    feed: dict[str, Any] = {"q": noise(2, rows, 64), "k": noise(2, rows, 32), "v": noise(2, rows, 32)}
    feed |= {"_pk": None, "_pv": None, "l": np.full(2, rows - 1, np.int32), "t": np.array([rows], np.int32)}
    if sinks:
        feed |= {"_c": None, "_s": None, "_p": None, "_a": None, "sinks": noise(4)}
    how = {"num_heads": 4, "kv_num_heads": 2, "smooth_softmax": int(not sinks)}
    both("GroupQueryAttention", feed, outs=3, **how)


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("second", [0, 1])
@pytest.mark.parametrize("turned", [0, 1])
def test_products_whose_batch_stands_between_rows_and_columns(first: int, second: int, turned: int) -> None:
    rows, columns = (5, 4) if turned else (4, 5)
    a = noise(rows, 2, 3, columns) if first else noise(2, 3, rows, columns)
    b = noise(5, 2, 3, 6) if second else noise(2, 3, 5, 6)
    how = {"transBatchA": first, "transBatchB": second, "transA": turned, "alpha": 0.5}
    both("FusedMatMul", {"a": a, "b": b}, **how)


@pytest.mark.parametrize("zeros", [None, "whole", "float"])
@pytest.mark.parametrize("bits", [2, 4])
def test_products_with_weights_of_two_bits_and_of_blocks_by_index(zeros: str | None, bits: int) -> None:
    wide, out, block = 64, 16, 32
    rng, blocks = np.random.default_rng(0), wide // block
    stored: dict[str, Any] = {"w": rng.integers(0, 256, (out, blocks, block * bits // 8)).astype(np.uint8)}
    stored["s"] = np.abs(noise(out * blocks))
    if zeros == "whole":
        stored["z"] = rng.integers(0, 256, out * -(-blocks * bits // 8)).astype(np.uint8)
    if zeros == "float":
        stored["z"] = noise(out * blocks) + 2 ** (bits - 1)
    how = {"K": wide, "N": out, "bits": bits, "block_size": block}
    both("MatMulNBits", {"x": noise(3, wide)}, stored=stored, **how)
    by_index = {**stored, "g": rng.permutation(np.arange(wide) // block).astype(np.int32)}
    if zeros is None:
        by_index = {k: by_index[k] for k in ("w", "s", "g")}
    reads = ["x", "w", "s", "z" if zeros else "", "g"]
    node = helper.make_node("MatMulNBits", reads, ["y"], "it", domain=MS, **how)
    made, feed = made_of([node], {"x": noise(3, wide)}, ["y"], 17, by_index), {"x": noise(3, wide)}
    if bits == 4 and zeros != "whole":
        agree(made, feed)
    else:
        with pytest.raises(bslite.UnsupportedError, match="with g_idx, of other than 4 bits or with zero"):
            bslite.compile(made)(feed)


def test_one_pixel_of_pytorch_s_half_pixels_is_the_first() -> None:
    how = {"mode": "cubic", "coordinate_transformation_mode": "pytorch_half_pixel"}
    feed = {"x": noise(2, 3, 4, 5), "_roi": None, "_scales": None}
    for size in ((1, 1), (1, 8), (7, 1)):
        both("Resize", feed, opset=19, domain="", stored={"s": np.array([2, 3, *size])}, **how)


@pytest.mark.parametrize("how", [{}, {"pads": [1, 0, 1, 1]}, {"auto_pad": "SAME_UPPER", "dilations": [1, 1]}])
def test_pools_of_channels_last(how: dict[str, Any]) -> None:
    feed = {"x": np.random.default_rng(0).integers(-128, 128, (2, 9, 8, 4)).astype(np.int8)}
    both("NhwcMaxPool", feed, kernel_shape=[3, 2], strides=[2, 1], **how)
