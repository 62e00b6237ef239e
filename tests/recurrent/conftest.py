"""Weights and inputs that torch draws are the same in every run."""

import pytest


@pytest.fixture(autouse=True)
def _seed() -> None:
    import torch

    torch.manual_seed(0)
