"""`bslite.run` as a user meets it: what it takes, what it refuses and how it says so."""

import gc
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from support.check import Array
from support.graphs import Graph, one_op
from support.noise import noise

import bslite
from bslite import BsliteError, EngineError, InputError, ModelSpec, SpecError, api
from bslite.engines.cpu import constants
from bslite.plan import Const


def small_net(fixed: bool = False) -> ModelSpec:
    """conv -> relu -> max pool -> conv + skip -> global pool -> linear, odd sizes throughout."""
    rng = np.random.default_rng(0)
    g = Graph()
    shape = ("N", 5, 20, 22) if fixed else ("N", 5, "H", "W")
    x = g.input("image", shape, (1, 5, 20, 22))

    def conv(name: str, source: str, c: int, k: int, r: int) -> str:
        weight = rng.standard_normal((k, c, r, r)).astype(np.float32) / c
        return g("conv2d", name, source, weight=weight, padding=r // 2)

    x = g("relu", "relu", conv("stem", x, 5, 19, 3))
    x = g("max_pool2d", "pool", x, kernel=3, stride=2)
    x = g("add", "add", conv("conv", x, 19, 19, 3), x)
    x = g("flatten", "flatten", g("adaptive_avg_pool2d", "avgpool", x, output_size=1))
    return g.build(g("linear", "fc", x, weight=rng.standard_normal((7, 19)).astype(np.float32)))


@pytest.fixture(scope="module")
def spec() -> ModelSpec:
    return small_net()


def picture(batch: int = 2, height: int = 20, width: int = 22, seed: int = 0) -> Array:
    return noise(batch, 5, height, width, seed=seed)


def test_any_memory_layout_gives_the_same_bits(spec: ModelSpec) -> None:
    x = picture()
    want = bslite.run(spec, x).tobytes()
    wide = np.zeros((2, 5, 40, 66), np.float32)
    wide[:, :, ::2, ::3] = x
    layouts = {
        "channels last": np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2),
        "fortran": np.asfortranarray(x),
        "strided": wide[:, :, ::2, ::3],
        "reversed twice": np.ascontiguousarray(x[:, :, ::-1])[:, :, ::-1],
        "read only": np.frombuffer(x.tobytes(), np.float32).reshape(x.shape),
        "transposed image": np.ascontiguousarray(x.swapaxes(2, 3)).swapaxes(2, 3),
        "cut out": np.pad(x, ((0, 0), (0, 0), (1, 2), (3, 1)))[:, :, 1:-2, 3:-1],
    }
    for name, array in layouts.items():
        assert np.array_equal(array, x), name
        assert bslite.run(spec, array).tobytes() == want, name


def test_broadcast_input(spec: ModelSpec) -> None:
    x = np.broadcast_to(picture(1), (3, 5, 20, 22))
    assert bslite.run(spec, x).tobytes() == bslite.run(spec, x.copy()).tobytes()


def test_misaligned_memory(spec: ModelSpec) -> None:
    x = picture()
    raw = np.zeros(x.nbytes + 2, np.uint8)
    crooked = raw[2:].view(np.float32).reshape(x.shape) if raw[2:].ctypes.data % 4 == 0 else None
    if crooked is None:
        crooked = np.ndarray(x.shape, np.float32, raw, offset=2)
    crooked[...] = x
    assert bslite.run(spec, crooked).tobytes() == bslite.run(spec, x).tobytes()


def test_torch_in_torch_out(spec: ModelSpec) -> None:
    torch = pytest.importorskip("torch")
    x = torch.from_numpy(picture())
    want = bslite.run(spec, x.numpy())
    for tensor in (x, x.to(memory_format=torch.channels_last), x.clone().requires_grad_()):
        got = bslite.run(spec, tensor)
        assert isinstance(got, torch.Tensor)
        assert not got.requires_grad
        assert got.numpy().tobytes() == want.tobytes()


def test_the_input_is_not_written_to_and_outputs_are_new(spec: ModelSpec) -> None:
    x = picture()
    kept = x.copy()
    first = bslite.run(spec, x)
    copy = first.copy()
    second = bslite.run(spec, picture(seed=1))
    assert np.array_equal(x, kept)
    assert np.array_equal(first, copy)
    assert not np.shares_memory(first, second)


def test_reference_backend_agrees(spec: ModelSpec) -> None:
    x = picture()
    np.testing.assert_allclose(
        bslite.run(spec, x, backend="reference"), bslite.run(spec, x), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize(
    ("x", "says"),
    [
        (picture().astype(np.float64), "is float64, expected float32; bslite does not cast"),
        (picture().astype(np.float16), "is float16, expected float32"),
        (picture().astype(">f4"), "is >f4, expected float32"),
        (picture()[0], r"got rank 3 \[5, 20, 22\], expected \[N, 5, H, W\]"),
        (np.zeros((2, 4, 20, 22), np.float32), "axis 1 is 4, should be 5"),
        (np.zeros((0, 5, 20, 22), np.float32), "size 0 at axis 0"),
        (np.zeros((1, 5, 0, 22), np.float32), "size 0 at axis 2"),
        (picture().tolist(), r"takes 1 input\(s\), got 2"),
        ("image.png", "is a str; expected a numpy array or torch tensor"),
        (None, "is a NoneType"),
        ([picture(), picture()], r"takes 1 input\(s\), got 2"),
        ([], r"takes 1 input\(s\), got 0"),
    ],
)  # fmt: skip
def test_bad_input_is_named(spec: ModelSpec, x: object, says: str) -> None:
    with pytest.raises(InputError, match=says):
        bslite.run(spec, x)


def test_an_image_too_small_names_the_layer(spec: ModelSpec) -> None:
    with pytest.raises(SpecError, match=r"layer 'pool'.*\[2, 19, 2, 2\]"):
        bslite.run(spec, picture(2, 2, 2))


def test_fixed_size_model_refuses_another_size() -> None:
    with pytest.raises(InputError, match="axis 2 is 24, should be 20"):
        bslite.run(small_net(fixed=True), picture(1, 24, 22))


def test_bad_arguments(spec: ModelSpec) -> None:
    with pytest.raises(EngineError, match="backend 'tpu' is not one of"):
        bslite.run(spec, picture(), backend="tpu")
    for threads in (0, -1, True, 1.5):
        with pytest.raises(EngineError, match="threads must be a positive integer"):
            bslite.run(spec, picture(), threads=threads)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="takes a ModelSpec first, got str"):
        bslite.run("resnet50", picture())  # type: ignore[arg-type]
    assert issubclass(InputError, BsliteError)


def test_torch_tensors_of_another_kind_are_refused(spec: ModelSpec) -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(InputError, match=r"is torch\.float64, expected torch\.float32"):
        bslite.run(spec, torch.zeros(1, 5, 20, 22, dtype=torch.float64))
    with pytest.raises(InputError, match="is on meta"):
        bslite.run(spec, torch.zeros(1, 5, 20, 22, device="meta"))
    with pytest.raises(InputError, match="sparse"):
        bslite.run(spec, torch.zeros(1, 5, 20, 22).to_sparse())


def test_many_callers_at_once(spec: ModelSpec) -> None:
    inputs = [picture(1 + i % 3, 20 + i % 2, 22, seed=i) for i in range(24)]
    want = [bslite.run(spec, x, threads=1).tobytes() for x in inputs]
    with ThreadPoolExecutor(8) as pool:
        for threads in (1, 2, None):
            got = pool.map(lambda x, n=threads: bslite.run(spec, x, threads=n).tobytes(), inputs * 4)
            assert list(got) == want * 4


def test_plans_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """By what they take, and no size has memory for values of its own."""
    from bslite.engines.cpu import engine

    monkeypatch.setattr(engine, "MAX_PLAN_BYTES", 700_000)
    spec, plans, values = small_net(), [], []
    for width in [*range(60, 90), *range(60, 30, -1)]:
        bslite.run(spec, picture(1, 20, width))
        held = bslite.api.memory(spec)
        plans.append(held["plans"])
        values.append(held["values"])
    assert max(plans) <= 700_000 < 2 * plans[-1]
    assert 7 * plans[0] < plans[7] < 9 * plans[0]
    assert values[30:] == [max(values)] * 30
    sizes = [s.size for s in engine.engine_for(spec)._sessions.values()]
    assert sum(sizes) == plans[-1]
    assert len(sizes) > 8
    steps = engine.engine_for(spec)._sessions.values()[-1].plan
    assert max(values) < 4 * (2 * steps.arena_size * 90 / 31 + 4 * steps.scratch_size + 4096)


def test_a_prepared_call_takes_nothing_else(spec: ModelSpec) -> None:
    """What ran once is not checked again; what differs in anything that was checked is."""
    x = picture()
    want = bslite.run(spec, x, threads=1).tobytes()
    assert bslite.run(spec, x, threads=1).tobytes() == want
    shifted = np.frombuffer(b"." + x.tobytes(), np.uint8)[1:].view(np.float32).reshape(x.shape)
    assert not shifted.flags.aligned
    assert bslite.run(spec, shifted, threads=1).tobytes() == want
    assert bslite.run(spec, [x], threads=1).tobytes() == bslite.run(spec, (x,), threads=1).tobytes() == want
    assert np.array_equal(bslite.run(spec, x[:1], threads=1), bslite.run(spec, x, threads=1)[:1])
    swapped = x.astype(">f4")
    for wrong in (swapped, x.view(np.int32), x.astype(np.float64)):
        with pytest.raises(InputError, match=r"expected float32; bslite does not cast"):
            bslite.run(spec, wrong, threads=1)
    for threads in (True, 1.0):
        with pytest.raises(EngineError, match="positive integer"):
            bslite.run(spec, x, threads=threads)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="takes 1 input"):
        bslite.run(spec, [x, x], threads=1)


def test_tensors_and_dicts_are_not_checked_again_either(
    spec: ModelSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    x = torch.from_numpy(picture())
    wide = torch.zeros(2, 5, 20, 44)[..., ::2].copy_(x)
    kinds = {
        "tensor": x,
        "with gradients": x.clone().requires_grad_(),
        "parameter": torch.nn.Parameter(x.clone()),
        "list": [x],
        "channels last": x.contiguous(memory_format=torch.channels_last),
        "strided": wide,
        "array by name": {"image": x.numpy()},
        "tensor by name": {"image": x},
    }
    want = {name: bslite.run(spec, given, threads=1) for name, given in kinds.items()}
    checked: list[str] = []
    as_arrays = api.as_arrays
    monkeypatch.setattr(api, "as_arrays", lambda *a: checked.append("again") or as_arrays(*a))
    for name, given in kinds.items():
        made = bslite.run(spec, given, threads=1)
        assert type(made) is type(want[name]) is (np.ndarray if name == "array by name" else torch.Tensor)
        assert np.asarray(made).tobytes() == np.asarray(want["tensor"]).tobytes(), name
    assert not checked
    negated = torch.complex(0 * x, -x).conj().imag  # is negated when it is read
    assert negated.is_neg()
    assert bslite.run(spec, negated, threads=1).numpy().tobytes() == want["tensor"].numpy().tobytes()
    expanded = x[:1].expand(2, -1, -1, -1)
    for _ in range(2):
        assert torch.equal(bslite.run(spec, expanded, threads=1)[1], want["tensor"][0])
    assert checked
    with pytest.raises(InputError, match="there is no input 'picture'; 'image' is missing"):
        bslite.run(spec, {"picture": x}, threads=1)
    with pytest.raises(InputError, match=r"is torch\.float64, expected torch\.float32"):
        bslite.run(spec, x.double(), threads=1)


def test_a_prepared_call_keeps_nothing_alive() -> None:
    from bslite.engines.cpu.engine import engine_for

    spec, x = small_net(), picture()
    want = bslite.run(spec, x)
    engine = engine_for(spec)
    engine._sessions.size = 8 * engine.plans()
    session = weakref.ref(engine._sessions.values()[0])
    for width in range(23, 43):
        assert bslite.run(spec, x).tobytes() == want.tobytes()  # used again and again, so it stays
        bslite.run(spec, picture(1, 20, width))
    assert session() is not None
    for width in range(23, 43):
        bslite.run(spec, picture(1, 20, width))
    assert session() is None
    assert bslite.run(spec, x).tobytes() == want.tobytes()
    gone = weakref.ref(engine)
    del engine
    calls = spec.__dict__["_calls"]
    bslite.api.release(spec)
    gc.collect()
    assert calls
    assert gone() is None


def test_several_inputs_and_outputs() -> None:
    g = Graph()
    a, b = g.input("a", ("N", 4)), g.input("b", ("N", 4))
    total = g("add", "sum", a, b)
    spec = g.build(total, g("relu", "relu", total), a)
    x, y = np.float32([[1, -2, 3, -4]]), np.float32([[1, 1, -9, 1]])
    got = bslite.run(spec, (x, y))
    assert [o.tolist() for o in got] == [[[2, -1, -6, -3]], [[2, 0, 0, 0]], [[1, -2, 3, -4]]]
    with pytest.raises(InputError, match="axis 0 is 2, should be 1"):
        bslite.run(spec, (x, np.zeros((2, 4), np.float32)))


def test_more_memory_than_the_machine_has() -> None:
    graph = Graph()
    wide = graph("tile", "wide", graph.input("x", (1, 1)), repeats=(2**20, 2**24))
    spec = graph.build(graph("sum", "total", graph("exp", "e", wide)))
    with pytest.raises(EngineError, match=r"takes .* GB for values between layers; the machine has"):
        bslite.run(spec, np.ones((1, 1), np.float32))


def test_a_stride_beyond_64_bits() -> None:
    x = np.ones((1, 1, 4, 4), np.float32)
    spec = one_op("conv2d", x, weight=np.ones((1, 1, 1, 1), np.float32), stride=2**62)
    with pytest.raises(EngineError, match="beyond 64 bits"):
        bslite.run(spec, x)


@pytest.mark.parametrize("rows", [1 << 12, 1 << 11])
def test_a_large_table_is_read_where_it_lies(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    g = Graph()
    ids = g.input("ids", ("N", 3), (2, 3), "int64")
    memory = np.random.default_rng(0).standard_normal(rows * 64 + 2048).astype(np.float32)
    start = -memory.ctypes.data % 4096 // 4  # a page's, so that the page of the last byte goes on
    table = memory[start + 32 : start + 32 + rows * 64].reshape(rows, 64)
    model = g.build(g("gather", "rows", g("constant", "table", value=table), ids))
    made = []
    make = constants.make
    monkeypatch.setattr(constants, "make", lambda *a: (made.append(make(*a)), made[-1])[1])
    picked = np.array([[0, rows - 1, 5]])
    assert (bslite.run(model, picked) == table[picked]).all()
    (read,) = (m for m in made if m.size >= rows * 64)
    assert np.shares_memory(read, memory) == (table.nbytes >= constants.LARGE)
    assert (bslite.api.memory(model)["weights"] >= table.nbytes) == (table.nbytes < constants.LARGE)


def test_weights_as_panels_start_on_a_cache_line_and_end_in_zeros() -> None:
    w = np.random.default_rng(0).standard_normal((13, 7, 1, 1)).astype(np.float32)
    const = Const("w", "panels", ("w",), (("lanes", 8), ("width", 1), ("groups", 1)))
    made = constants.make(const, {"w": w})
    assert made.ctypes.data % 64 == 0
    assert made.size >= 16 * 7 + constants.SLACK
    assert not made[16 * 7 :].any()
    assert (made[: 8 * 7].reshape(7, 8) == w[:8, :, 0, 0].T).all()
