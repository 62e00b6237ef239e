"""What a `bslite.Session` says of streams that cannot be."""

import pytest
import torch
from torch import nn

import bslite
from bslite import EngineError, InputError, ModelSpec


@pytest.fixture
def spec() -> ModelSpec:
    return bslite.from_torch(nn.LSTM(4, 3, batch_first=True).eval(), (torch.randn(2, 5, 4),))


def test_streams_are_a_list(spec: ModelSpec) -> None:
    session = bslite.Session(spec, batch=2)
    with pytest.raises(InputError, match="streams is 1, expected a list of their numbers"):
        session.reset(streams=1)  # type: ignore[arg-type]


def test_more_streams_than_memory(spec: ModelSpec) -> None:
    with pytest.raises(EngineError, match="no memory for the states of 1000000000000 streams"):
        bslite.Session(spec, batch=10**12)
