"""Integers and conditions beside float32: spec, its file, reference, engine, and from torch."""

from pathlib import Path

import numpy as np
import pytest
import torch
from support.graphs import Graph, one_op

import bslite
from bslite import GraphBuilder, InputError, ModelSpec, SpecError, UnsupportedError


def lookup(rows: int = 5, width: int = 3) -> ModelSpec:
    """Token numbers to rows of a table."""
    g = Graph("lookup")
    ids = g.input("ids", ("N", "L"), (2, 4), "int64")
    table = np.arange(rows * width, dtype=np.float32).reshape(rows, width)
    return g.build(g("gather", "embedding", g("constant", "t", value=table), ids))


def test_an_embedding_by_engine_reference_and_from_a_file(tmp_path: Path) -> None:
    spec = lookup()
    spec.save(tmp_path / "model")
    ids = np.array([[0, 4, 2, -1], [1, 1, 3, 0]])
    (table,) = spec.params.values()
    want = table[ids]
    for model in (spec, bslite.load(tmp_path / "model")):
        assert model.dtypes == {"ids": "int64", "t": "float32", "embedding": "float32"}
        for backend in ("cpu", "reference"):
            np.testing.assert_array_equal(bslite.run(model, ids, backend=backend), want)
    assert bslite.verify(spec, ids).passed


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("index", [5, -6, 2**31 - 1])
def test_an_index_out_of_range_names_layer_and_index_and_the_next_run_is_right(
    backend: str, index: int
) -> None:
    spec = lookup()
    with pytest.raises(InputError, match=rf"layer 'embedding': index {index} is out of range .* size 5"):
        bslite.run(spec, np.array([[0, 1, 2, index]]), backend=backend)
    assert bslite.run(spec, np.array([[3]]), backend=backend)[0, 0, 0] == 9


def test_an_integer_of_more_than_32_bits_is_refused_not_cut_off() -> None:
    with pytest.raises(InputError, match=r"input 'ids' holds 4294967296; .* 32 bits"):
        bslite.run(lookup(), np.array([[2**32]]))


@pytest.mark.parametrize("x", [np.zeros((1, 2), np.float32), np.zeros((1, 2), np.int32)])
def test_inputs_are_not_cast(x: np.ndarray) -> None:
    with pytest.raises(InputError, match=r"input 'ids' is .*, expected int64"):
        bslite.run(lookup(), x)


def test_integers_stay_integers_and_bools_bools_through_movement() -> None:
    g = GraphBuilder("moves")
    a = g.input("a", (2, 3, 4, 5), dtype="int64")
    b = g.input("b", (2, 3, 4, 5), dtype="bool")
    moved = g.add("slice", "s", g.add("permute", "p", a, order=(0, 2, 3, 1)), axis=1, start=1)
    spec = g.build(
        g.add("concat", "c", moved, moved, axis=3),
        g.add("pad", "around", a, pads=(0, 0, 1, 1, 0, 0, 1, 1), value=-7),
        g.add("flatten", "f", b),
        g.add("cast", "counted", b, to="float32"),
        "a",
    )
    x = np.random.default_rng(0).integers(-(2**31), 2**31, (2, 3, 4, 5))
    mask = x > 0
    want = bslite.run(spec, [x, mask], backend="reference")
    assert [y.dtype.name for y in want] == ["int64", "int64", "bool", "float32", "int64"]
    for layerwise in (False, True):
        for got, expected in zip(bslite.run(spec, [x, mask], layerwise=layerwise), want, strict=True):
            assert got.dtype == expected.dtype
            np.testing.assert_array_equal(got, expected)


def test_what_is_no_integer_is_not_made_one() -> None:
    spec = one_op("cast", ("N",), to="int64")
    np.testing.assert_array_equal(bslite.run(spec, np.float32([1.9, -1.9, 0])), [1, -1, 0])
    for wrong in (np.nan, np.inf, -np.inf, 2.0**31, 2.0**40):
        with pytest.raises(InputError, match=r"layer 'layer': a number of its input cannot be made int64"):
            bslite.run(spec, np.float32([0, wrong, 1]))


def test_dtypes_are_checked_when_the_model_is_made() -> None:
    g = GraphBuilder("wrong")
    ids = g.input("ids", (2, 3), dtype="int64")
    g.add("relu", "act", ids)
    with pytest.raises(SpecError, match=r"layer 'act': op 'relu': input 0 is int64, expected float32"):
        g.build("act")
    with pytest.raises(SpecError, match=r"dtype 'float16' is not one of"):
        g.input("y", (2,), dtype="float16")


class Tokens(torch.nn.Module):
    """Embeddings of tokens and of their places, summed, and the mask as weights."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = torch.nn.Embedding(11, 8, padding_idx=0), torch.nn.Embedding(7, 8)
        self.register_buffer("ids", torch.arange(7))
        self.norm = torch.nn.LayerNorm(8)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.norm(self.words(ids) + self.places(self.ids))
        return x * mask.float()[:, :, None], ids[:, ::2]


def test_from_torch_with_tokens_and_a_mask() -> None:
    torch.manual_seed(0)
    module = Tokens().eval()
    ids, mask = torch.randint(0, 11, (4, 7)), torch.rand(4, 7) > 0.5
    spec = bslite.from_torch(module, (ids, mask))
    assert [i.dtype for i in spec.inputs] == ["int64", "bool"]
    for batch in (1, 3):
        given = torch.randint(0, 11, (batch, 7)), torch.rand(batch, 7) > 0.5
        with torch.no_grad():
            want = module(*given)
        got = bslite.run(spec, given)
        assert got[1].dtype == torch.int64
        torch.testing.assert_close(got[0], want[0])
        assert torch.equal(got[1], want[1])
    with pytest.raises(InputError, match=r"layer 'words'.*index 11"):
        bslite.run(spec, (torch.full((1, 7), 11), given[1][:1]))


def test_from_torch_refuses_other_dtypes_by_name() -> None:
    class Half(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.half()

    with pytest.raises(UnsupportedError, match=r"returns float16; bslite has float32, int64, int32, bool"):
        bslite.from_torch(Half().eval(), torch.zeros(2, 3))
    with pytest.raises(InputError, match=r"example input 0 is float64"):
        bslite.from_torch(Half().eval(), torch.zeros(2, 3, dtype=torch.float64))
