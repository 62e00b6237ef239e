"""Models with recurrent layers among others: from torch and from ONNX, run and optimized, three-way."""

import warnings
from typing import Any

import pytest
import torch
from support.torch_modules import Made
from support.torch_three_way import check_by_torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import bslite
from bslite.dropin.runner import runner_of


def language_model() -> nn.Module:
    """Tokens to logarithms of the next one's probabilities, tied weights, dropout in between."""

    def forward(net: Any, ids: Any) -> Any:
        y, _ = net.rnn(net.drop(net.words(ids)))
        scores = net.out(net.drop(y))
        return torch.log_softmax(scores.view(-1, 40) if net.flat else scores, -1)

    rnn = nn.LSTM(24, 24, num_layers=2, dropout=0.4, batch_first=True)
    parts = {"words": nn.Embedding(40, 24), "rnn": rnn, "out": nn.Linear(24, 40)}
    net = Made(forward, flat=True, drop=nn.Dropout(0.5), **parts)
    net.out.weight = net.words.weight
    return net


def speech() -> nn.Module:
    """Frames through convolutions along time and a bidirectional LSTM to CTC labels, time first."""
    conv = nn.Sequential(
        nn.Conv1d(13, 20, 5, stride=2, padding=2), nn.BatchNorm1d(20), nn.ReLU(),
        nn.Conv1d(20, 20, 3, padding=1),
    )  # fmt: skip
    return Made(  # [N, 13, T] -> [T/2, N, 11]
        lambda net, x: torch.log_softmax(net.out(net.rnn(net.conv(x).permute(2, 0, 1))[0]), 2),
        conv=conv, rnn=nn.LSTM(20, 17, num_layers=2, bidirectional=True), out=nn.Linear(34, 11),
    )  # fmt: skip


def reader() -> nn.Module:
    """A CRNN: an image's columns are the time steps of a GRU."""

    def forward(net: Any, x: Any) -> Any:
        x = net.conv(x)  # [N, 12, 4, W]
        x = x.permute(0, 3, 1, 2).flatten(2)
        return torch.softmax(net.out(net.rnn(x)[0]), -1)

    conv = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 12, 3, padding=1), nn.ReLU(), nn.MaxPool2d((2, 1)),
    )  # fmt: skip
    rnn = nn.GRU(12 * 4, 19, bidirectional=True, batch_first=True)
    return Made(forward, conv=conv, rnn=rnn, out=nn.Linear(38, 10))


def translator() -> nn.Module:
    """Encoder and decoder, the state handed over, attention over the encoder's steps."""

    def forward(net: Any, source: Any, target: Any) -> Any:
        keys, state = net.encoder(net.source(source))
        y, _ = net.decoder(net.target(target), state)
        weights = torch.softmax(y @ keys.transpose(1, 2), -1)
        return net.out(torch.cat([y, weights @ keys], -1))

    encoder, decoder = (nn.LSTM(12, 18, batch_first=True, num_layers=2) for _ in range(2))
    words = {"source": nn.Embedding(30, 12), "target": nn.Embedding(25, 12)}
    return Made(forward, **words, encoder=encoder, decoder=decoder, out=nn.Linear(36, 25))


def characters() -> nn.Module:
    """GRU cells in a Python loop, unrolled; each step sees the one before."""

    def forward(net: Any, ids: Any) -> Any:
        x = net.letters(ids)
        low = high = x.new_zeros(1).expand(x.shape[0], 16)
        made = []
        for t in range(ids.shape[1]):
            low = net.below(x[:, t], low)
            high = net.above(low, high)
            made.append(net.out(high))
        return torch.stack(made, 1)

    cells = {"below": nn.GRUCell(9, 16), "above": nn.GRUCell(16, 16)}
    return Made(forward, letters=nn.Embedding(28, 9), **cells, out=nn.Linear(16, 28))


def classifier() -> nn.Module:
    """Packed, bidirectional, summed over each sequence's own steps."""

    def forward(net: Any, ids: Any, lengths: Any) -> Any:
        packed = pack_padded_sequence(net.words(ids), lengths, batch_first=True, enforce_sorted=False)
        y, _ = pad_packed_sequence(net.rnn(packed)[0], batch_first=True, total_length=ids.shape[1])
        return torch.softmax(net.out(y.sum(1)), -1)

    rnn = nn.GRU(10, 13, bidirectional=True, batch_first=True)
    return Made(forward, words=nn.Embedding(50, 10), rnn=rnn, out=nn.Linear(26, 4))


def ids(batch: int, steps: int, most: int) -> torch.Tensor:
    return torch.randint(0, most, (batch, steps))


MODELS: dict[str, tuple[Any, Any]] = {
    "language model": (language_model, lambda n: (ids(n, 7, 40),)),
    "speech": (speech, lambda n: (torch.randn(n, 13, 23),)),
    "reader": (reader, lambda n: (torch.randn(n, 1, 16, 30),)),
    "translator": (translator, lambda n: (ids(n, 6, 30), ids(n, 5, 25))),
    "characters": (characters, lambda n: (ids(n, 5, 28),)),
    "classifier": (classifier, lambda n: (ids(n, 8, 50), torch.arange(n) % 8 + 1)),
}


@pytest.mark.parametrize("name", MODELS)
def test_from_torch_at_any_batch(name: str, tmp_path: Any) -> None:
    make, draw = MODELS[name]
    module = make().eval()
    spec = bslite.from_torch(module, draw(3))
    for batch in (3, 1, 6):
        check_by_torch(spec, module, *draw(batch))
    spec.save(tmp_path / "model.safetensors")  # weights from torch, then no torch
    check_by_torch(bslite.load(tmp_path / "model.safetensors"), module, *draw(2))


@pytest.mark.parametrize("name", MODELS)
def test_optimized(name: str) -> None:
    make, draw = MODELS[name]
    module = make().eval()
    fast = bslite.optimize(module, tune=False, fallback="error")
    with torch.no_grad():
        for batch in (4, 2):
            inputs = draw(batch)
            torch.testing.assert_close(fast(*inputs), module(*inputs))
        for p in module.parameters():  # changed weights are followed
            p.mul_(0.5)
        torch.testing.assert_close(fast(*inputs), module(*inputs))
    assert not runner_of(fast).in_torch
    assert len(runner_of(fast).kinds.made) == 1  # one export for both batches


@pytest.mark.parametrize("name", ["language model", "translator"])
def test_from_onnx_at_any_number_of_steps(name: str, tmp_path: Any) -> None:
    pytest.importorskip("onnx")
    make, draw = MODELS[name]
    module, inputs = make().eval(), draw(3)
    names = [f"x{i}" for i in range(len(inputs))]
    axes = {n: {0: "N", x.ndim - 1: f"T{i}"} for i, (n, x) in enumerate(zip(names, inputs, strict=True))}
    module.flat = False
    path = str(tmp_path / "model.onnx")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module, inputs, path, input_names=names, dynamic_axes=axes, dynamo=False, opset_version=17
        )
    spec = bslite.from_onnx(path, shapes={n: tuple(x.shape) for n, x in zip(names, inputs, strict=True)})
    check_by_torch(spec, module, *inputs)
    if name != "translator":
        for steps in (2, 19):
            x = inputs[0]
            check_by_torch(spec, module, torch.cat([x] * 3, -1)[..., :steps])


def test_nan_reaches_what_it_must_and_nothing_else() -> None:
    """In one sequence of a batch, at one step: that sequence, from that step on (both ways: all of it)."""
    for both in (False, True):
        module = nn.LSTM(5, 9, batch_first=True, bidirectional=both, num_layers=2).eval()
        x = torch.randn(3, 7, 5)
        spec = bslite.from_torch(module, (x,))
        clean = bslite.run(spec, x)[0]
        x[1, 4, 2] = torch.nan
        y = bslite.run(spec, x)[0]
        assert torch.equal(y[[0, 2]], clean[[0, 2]])
        assert torch.isnan(y[1, 4:, :9]).all()
        assert torch.isnan(y[1, :4]).all() if both else torch.equal(y[1, :4], clean[1, :4])
