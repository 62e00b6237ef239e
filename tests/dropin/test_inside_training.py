"""Training inside a forward that cannot be traced: gradients, checkpoints, one mode after the other."""

from typing import Any

import pytest
from support.dropin_models import Detector, agree, images, near, nn, torch
from torch.utils.checkpoint import checkpoint

import bslite
from bslite.dropin.runner import CALLS


def test_layers_train_inside_a_forward_that_cannot_be_traced() -> None:
    torch.manual_seed(0)
    ours, theirs = Detector().train(), Detector().train()
    theirs.load_state_dict(ours.state_dict())
    fast = bslite.optimize(ours, tune=False, fallback="silent")
    for _ in range(3):
        x = images(3)
        with torch.enable_grad():
            for net in (fast, theirs):
                net.zero_grad()
                net(x).square().sum().backward()
        for mine, own in zip(ours.parameters(), theirs.parameters(), strict=True):
            if own.grad is None:  # a score is read as a number
                assert mine.grad is None
            else:
                near(mine.grad, own.grad)
                mine.data.sub_(0.01 * mine.grad)
                own.data.sub_(0.01 * own.grad)
    trained = {path for path, own in bslite.report(fast).inside if own.training}
    assert {"backbone", "heads.0"} <= trained


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoints_run_by_torch(reentrant: bool) -> None:
    class Checkpoints(Detector):
        def forward(self, x: Any) -> Any:
            rows = checkpoint(self.backbone, x, use_reentrant=reentrant).flatten(2).transpose(1, 2)
            return self.heads[0](rows) * float(rows.sum() > 0)

    torch.manual_seed(0)
    ours, theirs = Checkpoints().train(), Checkpoints().train()
    theirs.load_state_dict(ours.state_dict())
    fast = bslite.optimize(ours, tune=False, fallback="silent")
    with torch.enable_grad():
        for _ in range(2):
            x = images(3).requires_grad_()
            for net in (fast, theirs):
                net.zero_grad()
                net(x).square().sum().backward()
            for name in ("backbone.0.weight", "heads.0.weight"):
                near(ours.get_parameter(name).grad, theirs.get_parameter(name).grad)


def test_a_layer_is_tried_again() -> None:
    class Moody(nn.Linear):
        def forward(self, x: Any) -> Any:
            return super().forward(x) * (1 if not self.training or float(x.sum()) > 0 else 2)

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = Moody(6, 6)

        def forward(self, x: Any) -> Any:
            return self.first(x) + float(x[0, 0])

    net = Outer().train()
    fast = bslite.optimize(net, tune=False, fallback="silent")
    for _ in range(CALLS + 2):
        near(fast(torch.ones(2, 6)), net(torch.ones(2, 6)))
    net.eval()
    for _ in range(2):
        agree(fast, net, torch.randn(2, 6))
    assert "first" in [path for path, own in bslite.report(fast).inside if own.kinds]
