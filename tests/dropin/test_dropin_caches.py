"""What a forward's code keeps for later calls, of any module, while the forward is traced."""

import copy
import functools
import threading
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bslite

R = torch.randn
KEPT: dict[int, Tensor] = {}


@functools.lru_cache
def positions(n: int) -> Tensor:
    return torch.linspace(0, 1, n)


class Caching(nn.Module):
    shared: dict[int, Tensor] = {}

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        n = x.shape[1]
        for cache in (KEPT, self.shared):
            if n not in cache:
                cache[n] = torch.linspace(0, 1, n)
        made: Tensor = self.layer(x) + positions(n) * KEPT[n] - self.shared[n]
        return made


@pytest.fixture(autouse=True)
def _empty() -> None:
    for clear in (KEPT.clear, Caching.shared.clear, positions.cache_clear):
        clear()


def check(fast: Any, plain: nn.Module) -> None:
    for batch in (3, 5, 7, 3):
        x = R(batch, 4)
        got = fast(x)
        assert type(got) is Tensor
        torch.testing.assert_close(got, plain(x))
    assert {type(t) for t in (positions(4), KEPT[4], Caching.shared[4])} == {Tensor}


@pytest.mark.parametrize("training", [False, True])
def test_no_stand_in_of_a_trace_is_kept(training: bool) -> None:
    plain = Caching().train(training)
    with torch.set_grad_enabled(training):
        check(bslite.optimize(plain, tune=False, fallback="silent"), plain)


def test_nor_one_of_from_torch() -> None:
    plain = Caching().eval()
    spec = bslite.from_torch(plain, R(3, 4))
    with torch.no_grad():
        check(lambda x: torch.from_numpy(bslite.run(spec, x.numpy())), plain)


def test_two_modules_prepared_at_a_time_leave_torch_as_it_was() -> None:
    """What keeps a first run from writing to parameters is set for all threads."""
    from torch._dynamo import eval_frame

    plain = Caching().eval()

    def prepare() -> None:
        with torch.no_grad():
            bslite.optimize(copy.deepcopy(plain), tune=False, fallback="silent")(R(3, 4))

    threads = [threading.Thread(target=prepare) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert eval_frame._stance.stance == "default"
