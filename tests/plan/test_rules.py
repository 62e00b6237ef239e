"""Small rewrites: what does nothing goes, moves cancel, constants go into layers, one-hots pick rows."""

import numpy as np
import pytest
from support.check import assert_three_way
from support.graphs import Graph
from support.rewriting import RNG, Net, array, check, fixed_image, image, repeated

import bslite
from bslite import reference
from bslite.passes import simplify
from bslite.spec import ModelSpec


def test_what_does_nothing_goes() -> None:
    net, x = image()
    y = net("add", net("mul", net("tanh", x), 1.0), 0.0)
    y = net("cast", net("reshape", net("div", y, 1.0), shape=(0, 6, -1, 4)), to="float32")
    y = net("slice", net("expand", y, shape=(-1, 6, -1, -1)), axis=1, start=0, stop=9)
    check(net.build(net("relu", net("concat", y, axis=1))), "tanh", "relu")


def test_what_changes_the_shape_or_is_an_output_stays() -> None:
    net, x = image()
    check(net.build(net("tanh", net("add", x, np.zeros((3, 1, 6, 1, 1))))), "add", "tanh")
    net, x = image()
    check(net.build(net("mul", net("tanh", x), 1.0)), "tanh", "mul")
    net, x = image()
    check(net.build(net("relu", net("slice", x, axis=2, stop=5))), "slice", "relu")  # of an axis of any size


def test_moves_cancel() -> None:
    net, x = image()
    y = net("permute", net("permute", net("tanh", x), order=(0, 2, 3, 1)), order=(0, 3, 1, 2))
    y = net("reshape", net("reshape", y, shape=(0, 6, -1)), shape=(0, 6, -1, 4))
    check(net.build(net("relu", y)), "tanh", "relu")


def test_moves_join() -> None:
    net, x = image()
    y = net("permute", net("permute", net("tanh", x), order=(0, 2, 3, 1)), order=(0, 2, 1, 3))
    y = net("reshape", net("flatten", y, start_axis=1), shape=(0, 6, -1))
    check(net.build(net("relu", y)), "tanh", "permute", "reshape", "relu")


def test_an_activation_goes_before_moves() -> None:
    net, x = image()
    y = net("conv2d", x, weight=array(5, 6, 1, 1))
    y = net("gelu", net("permute", net("reshape", y, shape=(0, 5, -1)), order=(0, 2, 1)))
    simple = check(net.build(net("tanh", y)), "conv2d", "gelu", "reshape", "permute", "tanh")
    assert simple.nodes[-2].name == y
    net, x = image()
    y = net("relu", net("flatten", net("conv2d", x, weight=array(5, 6, 1, 1)), start_axis=2))
    check(net.build(y), "conv2d", "relu", "flatten")


def test_an_activation_stays_behind_moves_of_what_others_read() -> None:
    net, x = image()
    y = net("flatten", net("conv2d", x, weight=array(5, 6, 1, 1)), start_axis=2)
    check(net.build(net("add", net("tanh", y), y)), "conv2d", "flatten", "tanh", "add")
    net, x = image()
    check(net.build(net("relu", net("permute", net("exp", x), order=(0, 2, 3, 1)))), "exp", "permute", "relu")


def complex_numbers() -> tuple[Net, str]:
    net = Net()
    return net, net.input("x", ("N", 5, 7, 2), (2, 5, 7, 2))


@pytest.mark.parametrize("place", [0, 1])
def test_a_conjugate_joins_a_product(place: int) -> None:
    def conj(net: Net, x: str) -> str:
        return net("mul", x, np.array([1.0, -1.0]))

    net, x = complex_numbers()
    y = net("tanh", x)
    factors = [x, conj(net, y)] if place else [conj(net, y), x]
    simple = check(net.build(net("complex_mul", *factors)), "tanh", "complex_mul")
    assert simple.nodes[-1].attrs == {"conj": True}
    net, x = complex_numbers()
    y = net("complex_mul", x, conj(net, net("tanh", x)), conj=True)
    assert check(net.build(y), "tanh", "complex_mul").nodes[-1].attrs == {"conj": False}
    net, x = complex_numbers()
    y = net("complex_mul", conj(net, net("tanh", x)), x, conj=True)  # the conjugate of a product
    check(net.build(y), "tanh", "mul", "complex_mul")
    net, x = complex_numbers()
    y = net("complex_mul", x, net("mul", net("tanh", x), np.array([1.0, -2.0])))
    check(net.build(y), "tanh", "mul", "complex_mul")


def test_what_is_no_conjugate_stays() -> None:
    for signs in (np.array([[1.0], [-1.0]]), np.array([[[[[1.0, -1.0]]]]])):  # by rows; with another axis
        net = Net()
        x = net.input("x", ("N", 5, 2, 2), (2, 5, 2, 2))
        y = net("complex_mul", x, net("mul", net("tanh", x), signs))
        check(net.build(y), "tanh", "mul", "complex_mul")
    net = Net()
    x, z = net.input("x", ("N", 5, 1), (2, 5, 1)), net.input("z", ("N", 5, 2), (2, 5, 2))
    y = net("complex_mul", z, net("mul", net("tanh", x), np.array([1.0, -1.0])))  # pairs of one number
    check(net.build(y), "tanh", "mul", "complex_mul")


def last(net: Net, x: str) -> str:
    return net("permute", x, order=(0, 2, 3, 1))


def first(net: Net, x: str) -> str:
    return net("permute", x, order=(0, 3, 1, 2))


def conv(net: Net, x: str) -> str:
    return net("conv2d", x, weight=array(6, 6, 3, 3), padding=1)


def test_residual_blocks_with_channels_last_keep_no_permutations() -> None:
    """As converters from TensorFlow write them: every convolution between two permutations."""
    net, x = image()
    y = last(net, conv(net, x))
    for _ in range(2):
        y = net("relu", net("add", last(net, conv(net, first(net, y))), y))
    layers = ("conv2d", "add", "relu")
    check(net.build(conv(net, first(net, y))), "conv2d", *layers, *layers, "conv2d")


def test_arithmetic_on_values_permuted_alike_is_done_before() -> None:
    net, x = image()
    y = net("mul", last(net, net("tanh", x)), last(net, net("exp", x)))
    y = net("sub", net("add", y, 3.0), net("permute", net("sin", x), order=(0, 2, 3, 1)))
    check(
        net.build(net("softmax", y, axis=1)), "tanh", "exp", "mul", "add", "sin", "sub", "permute", "softmax"
    )
    net, x = image()
    squeezed = net("mean", x, axes=(2, 3), keepdim=True)
    y = net("mul", last(net, net("tanh", x)), last(net, squeezed))
    check(net.build(y), "mean", "tanh", "mul", "permute")


def test_arithmetic_on_values_permuted_otherwise_stays_behind() -> None:
    net, x = image()
    squeezed = net("permute", net("mean", x, axes=(2, 3), keepdim=True), order=(0, 3, 2, 1))
    y = net("mul", last(net, net("tanh", x)), squeezed)
    check(net.build(y), "mean", "permute", "tanh", "permute", "mul")
    net, x = image()  # each is read elsewhere: there would be one more
    y, z = last(net, net("tanh", x)), last(net, net("exp", x))
    spec = net.build(net("add", y, z), net("mean", y, axes=(1,)), net("mean", z, axes=(1,)))
    assert [n.op for n in simplify(spec).nodes].count("permute") == 2
    assert next(n for n in simplify(spec).nodes if n.op == "add").inputs == (y, z)


def test_a_move_that_is_read_elsewhere_stays() -> None:
    net, x = image()
    last = net("permute", net("tanh", x), order=(0, 2, 3, 1))
    spec = net.build(net("relu", net("permute", last, order=(0, 3, 1, 2))), net("relu", last))
    assert sorted(n.op for n in simplify(spec).nodes) == ["permute", "relu", "relu", "tanh"]


@pytest.mark.parametrize("shape", [(5, 1, 1), (1, 5, 1, 1), (), (1,)])
@pytest.mark.parametrize("bias", [False, True])
def test_scale_and_shift_go_into_a_convolution(shape: tuple[int, ...], bias: bool) -> None:
    net, x = image()
    more = {"bias": array(5)} if bias else {}
    y = net("conv2d", x, weight=array(5, 6, 3, 3), **more)
    y = net("sub", net("add", net("div", net("mul", array(*shape), y), 1.7), array(*shape)), array(*shape))
    check(net.build(net("relu", y)), "conv2d", "relu")


def test_scale_and_shift_go_into_a_transposed_convolution_and_a_linear_layer() -> None:
    net, x = image()
    y = net("conv_transpose2d", x, weight=array(6, 2, 3, 3), groups=3)
    check(net.build(net("mul", net("sub", 2.0, y), array(6, 1, 1))), "conv_transpose2d")
    net = Net()
    y = net("linear", net.input("x", ("N", "T", 6), (2, 3, 6)), weight=array(5, 6))
    check(net.build(net("add", net("mul", y, array(5)), array(1, 1, 5))), "linear")


def test_constants_that_vary_along_other_axes_stay() -> None:
    net, x = image()
    y = net("conv2d", x, weight=array(4, 6, 1, 1))
    check(net.build(net("mul", y, array(4))), "conv2d", "mul")  # along the columns
    net = Net()
    y = net("linear", net.input("x", (2, 5, 6)), weight=array(5, 6))
    check(net.build(net("add", y, array(5, 1))), "linear", "add")
    net, x = image()
    y = net("conv2d", x, weight=array(4, 6, 1, 1))
    check(net.build(net("add", net("mul", y, 2.0), y)), "conv2d", "mul", "add")  # y is read twice
    net, x = image()
    y = net("conv2d", x, weight=array(4, 6, 1, 1))
    check(net.build(net("div", 2.0, y)), "conv2d", "div")


def test_constants_go_into_layers_through_moves() -> None:
    net, x = image()
    y = net("permute", net("conv2d", x, weight=array(5, 6, 1, 1)), order=(0, 2, 3, 1))
    check(net.build(net("mul", net("add", y, array(5)), array(1, 1, 1, 5))), "conv2d", "permute")
    net, x = image()
    y = net("flatten", net("conv2d", x, weight=array(5, 6, 1, 1)), start_axis=2)
    check(net.build(net("relu", net("add", y, array(5, 1)))), "conv2d", "relu", "flatten")


def test_constants_along_another_axis_than_the_moved_channels_stay() -> None:
    net, x = image()
    y = net("permute", net("conv2d", x, weight=array(4, 6, 1, 1)), order=(0, 1, 3, 2))
    check(net.build(net("add", y, array(4, 1))), "conv2d", "permute", "add")
    net, x = image()
    y = net("reshape", net("conv2d", x, weight=array(6, 6, 1, 1)), shape=(0, 2, 3, -1))  # channels in two
    check(net.build(net("add", y, array(3, 1))), "conv2d", "reshape", "add")


def test_permutations_cancel_across_axes_of_size_one() -> None:
    net = Net()
    y = net("permute", net("tanh", net.input("x", ("N", 6, 5), (2, 6, 5))), order=(0, 2, 1))
    y = net("permute", net("reshape", y, shape=(0, 5, 6, 1)), order=(0, 2, 3, 1))
    check(net.build(net("relu", y)), "tanh", "reshape", "relu")
    net = Net()
    y = net("permute", net("tanh", net.input("x", ("N", 6, 5), (2, 6, 5))), order=(0, 2, 1))
    y = net("permute", net("reshape", y, shape=(0, 5, 6, 1)), order=(0, 1, 3, 2))
    check(net.build(net("relu", y)), "tanh", "permute", "reshape", "permute", "relu")


def one_hot(linear: bool, **attrs: object) -> ModelSpec:
    net = Net()
    i = net.input("i", ("N", 7), (3, 7), dtype="int64")
    hot = net("one_hot", i, depth=4, **attrs)
    if linear:
        return net.build(net("linear", hot, weight=array(5, 4), bias=array(5)))
    return net.build(net("matmul", hot, array(4, 5)))


@pytest.mark.parametrize("linear", [False, True])
def test_one_hot_times_a_matrix_picks_rows(linear: bool) -> None:
    i = RNG.integers(-7, 8, (3, 7))  # some out of range: rows of zeros
    check(one_hot(linear), "minimum", "maximum", "gather", inputs=[i])


def test_another_one_hot_is_left_alone() -> None:
    i = RNG.integers(0, 4, (3, 7))
    check(one_hot(True, off=0.5), "one_hot", "linear", inputs=[i])
    check(one_hot(False, on=2.0), "one_hot", "linear", inputs=[i])
    check(one_hot(True, strict=True), "one_hot", "linear", inputs=[i])


@pytest.mark.parametrize("first", [0, 1])
def test_indices_compared_with_all_numbers_pick_rows(first: int) -> None:
    """How a one-hot is written out; numbers that do not begin at zero are left alone."""
    net = Net()
    i = net("reshape", net.input("i", ("N", 7), (3, 7), dtype="int32"), shape=(0, 0, 1))
    numbers = Graph.__call__(
        net, "constant", "numbers", value=np.arange(first, first + 4, dtype=np.int32)[None]
    )
    hot = net("cast", net("equal", i, numbers), to="float32")
    y = net("relu", net("add", net("linear", hot, weight=array(5, 4)), array(5)))
    ops = ("minimum", "maximum", "gather") if first == 0 else ("reshape", "equal", "cast", "linear", "relu")
    check(net.build(y), *ops, inputs=[RNG.integers(-2, 6, (3, 7)).astype(np.int32)])


def test_a_function_of_a_large_table_stays() -> None:
    net = Net()
    i = net.input("i", ("N", 7), (3, 7), dtype="int64")
    y = net("gather", array(50, 5), i, axis=0)
    check(net.build(net("relu", y)), "gather", "relu", inputs=[RNG.integers(0, 50, (3, 7))])


def test_a_reduction_keeps_the_axes_that_a_reshape_gives_back() -> None:
    for axes, shape, ops in (
        ([2, 3], (0, 6, 1, 1), ["mean", "mul"]),
        ([1], (0, 1, -1, 4), ["mean", "mul"]),
        ([2, 3], (0, 1, 6, 1), ["mean", "reshape", "mul"]),
    ):
        net, x = image()
        means = net("mean", x, axes=axes, keepdim=False)
        check(net.build(net("mul", x if ops[1] == "mul" else 2.0, net("reshape", means, shape=shape))), *ops)
    net, x = image()
    means = net("mean", x, axes=[2, 3], keepdim=False)  # read by two: both shapes are needed
    scaled = net("mul", x, net("reshape", means, shape=(0, 6, 1, 1)))
    first = net("reshape", net("sum", means, axes=[1], keepdim=False), shape=(0, 1, 1, 1))
    check(net.build(net("add", scaled, first)), "mean", "reshape", "mul", "sum", "reshape", "add")


def test_zeros_around_an_image_are_padding() -> None:
    net, x = image()
    y = net("pad", x, pads=(0, 0, 1, 2, 0, 0, 3, 0), mode="constant", value=0.0)
    y = net("conv2d", y, weight=array(5, 6, 3, 3), bias=array(5), padding=(0, 1, 1, 0), stride=(2, 1))
    assert check(net.build(y), "conv2d").nodes[0].attrs["padding"] == (1, 3, 4, 0)
    channel, cut = {"pads": (0, 1, 0, 0, 0, 0, 0, 0)}, {"pads": (*(0,) * 7, -1)}
    for how in ({"value": 1.0}, {"mode": "edge"}, channel, cut):
        net, x = image()
        y = net("pad", x, **{"pads": (0, 0, 1, 1, 0, 0, 1, 1), "mode": "constant", "value": 0.0, **how})
        channels = 7 if how is channel else 6
        check(net.build(net("conv2d", y, weight=array(5, channels, 3, 3))), "pad", "conv2d")


def test_a_product_with_a_constant_matrix_is_a_linear_layer() -> None:
    net, x = image()
    rows = net("reshape", x, shape=(0, -1, 4))
    check(net.build(net("add", net("matmul", rows, array(4, 7)), array(7))), "reshape", "linear")
    net, x = image()
    table = net("permute", net("constant", value=array(7, 4)), order=[1, 0])  # as it lies
    check(net.build(net("matmul", net("reshape", x, shape=(0, -1, 4)), table)), "reshape", "linear")
    net, x = image()
    check(net.build(net("matmul", x, array(6, 4, 7))), "matmul")


@pytest.mark.parametrize("turned", [False, True])
def test_a_constant_matrix_on_columns_is_a_linear_layer(turned: bool) -> None:
    """Of two columns it is none: they would have to be turned."""

    def product(columns: int) -> ModelSpec:
        net = Net()
        x = net.input("x", ("N", 6, 4, columns), (2, 6, 4, columns))
        matrix = net("constant", value=array(*((4, 7) if turned else (7, 4))))
        if turned:
            matrix = net("permute", matrix, order=[1, 0])
        return net.build(net("relu", net("add", net("matmul", matrix, x), array(7, 1))))

    check(product(1), "reshape", "linear", "relu", "reshape")
    ops = [node.op for node in simplify(product(2)).nodes]
    assert "matmul" in ops
    assert "linear" not in ops


def heads(net: Net, x: str, size: int = 4) -> str:
    """``[N, 6, H, size]`` as torch.bmm takes it: ``[N * 6, H, size]``."""
    return net("reshape", x, shape=(-1, 5, size))


def test_batches_and_heads_are_kept_apart() -> None:
    """Attention as older transformers have it, with a computed term that is made of merged axes, too."""
    net, x = fixed_image()
    q, k, v = heads(net, net("tanh", x)), heads(net, net("relu", x)), heads(net, x)
    scores = net("matmul", q, net("permute", net("mul", k, 0.5), order=[0, 2, 1]))
    term = net("reshape", net("linear", x, weight=array(5, 4)), shape=(-1, 5, 5))
    scores = net("reshape", net("add", scores, net("sin", term)), shape=(-1, 6, 5, 5))
    weights = net("reshape", net("softmax", scores, axis=-1), shape=(-1, 5, 5))
    y = net("reshape", net("matmul", weights, v), shape=(-1, 6, 5, 4))
    check(net.build(net("relu", y)), "tanh", "relu", "linear", "sin", "attention", "relu")


def test_a_known_condition_chooses() -> None:
    for known, ops in ((True, ["tanh"]), (False, ["relu"]), ([True, False, True, True], None)):
        net, x = image()
        condition = net("constant", value=np.asarray(known))
        y = net("where", condition, net("tanh", x), net("relu", x))
        check(net.build(net("exp", y)), *(ops or ["tanh", "relu", "where"]), "exp")
    net, x = image()  # known for all images
    condition = net("greater", repeated(net, array(1, 1, 1, 1), x), 0.1)
    check(net.build(net("exp", net("where", net("not", condition), 3.0, net("tanh", x)))), "tanh", "exp")


@pytest.mark.parametrize("size", [5, "T"])
def test_a_softmax_of_merged_axes_is_within_the_attention(size: int | str) -> None:
    """As torch.bmm takes all of it, and a term for each head that is broadcast (Bloom's positions)."""
    net = Net()
    x = net.input("x", ("N", 6, size, 4), (2, 6, 5, 4))
    q, k, v = (net("reshape", value, shape=(-1, -4, 4)) for value in (net("tanh", x), net("relu", x), x))
    term = net("reshape", net("mean", x, axes=[3], keepdim=False), shape=(-1, 1, -4))
    scores = net("add", net("sin", term), net("matmul", q, net("permute", k, order=[0, 2, 1])))
    scores = net("reshape", net("reshape", scores, shape=(-1, 6, -3, -4)), shape=(-1, -4, -5))
    y = net("matmul", net("softmax", scores, axis=2), v)
    simple = simplify(net.build(net("relu", net("reshape", y, shape=(-1, 6, -3, 4)))))
    assert [n.op for n in simple.nodes].count("attention") == 1
    assert "matmul" not in [n.op for n in simple.nodes]
    for shape in ((1, 6, 5, 4), (3, 6, 5, 4)):
        data = RNG.standard_normal(shape).astype(np.float32)
        exact, peer = (reference.run(simple, [data], dtype)[0] for dtype in (np.float64, np.float32))
        assert_three_way(bslite.run(simple, data), peer, exact)
