"""What `report` and `explain` say of training, and the budget of saved values."""

import json
from typing import Any

import pytest
import torch
from support.torch_modules import Made
from support.training import alike, step
from torch import Tensor, nn

import bslite
from bslite.dropin.training import part
from bslite.errors import InputError, UnsupportedError


def pictures() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 1), nn.ReLU(),
        nn.Conv2d(8, 8, 5, padding=2), nn.ReLU(), nn.Dropout(0.3), nn.Flatten(), nn.Linear(8 * 81, 3),
    )  # fmt: skip


def by_sign() -> nn.Module:
    """A module that no trace follows."""
    sign = lambda m, x: m.a(x.flatten(1) if float(x.sum()) > 9 else -x.flatten(1))  # noqa: E731
    return Made(sign, a=nn.Linear(243, 2))


def stepped(net: nn.Module, **options: Any) -> Any:
    ours = bslite.optimize(net.train(), training=True, fallback="silent", **options)
    step(ours, [torch.randn(4, 3, 9, 9)])
    return ours


def test_a_report_says_what_is_saved_and_what_is_made_again() -> None:
    report = bslite.report(stepped(pictures(), tune=False))
    (kind,) = report.training
    (part,) = kind.parts
    assert kind.shapes == ((4, 3, 9, 9),)
    assert kind.reason == ""
    assert part.part.runs_in == "bslite"
    assert part.saved_bytes == sum(size for _, size in part.saved)
    assert ("0/conv2d_given", 4 * 8 * 81 * 4) in part.saved
    assert part.remade
    text = str(report)
    assert "training, inputs [4, 3, 9, 9]: " in text
    assert f"saves {len(part.saved)} values, {part.saved_bytes / 1e6:.2f} MB, the largest" in text
    assert "makes again " in text
    assert "bslite.noise.default: torch's generator draws it; at 7" in text
    assert "note_batch_" not in text
    assert json.loads(json.dumps(report.as_dict()))["training"][0]["parts"][0]["remade"]


def test_a_report_says_what_was_measured_and_why_torch_runs_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part, "seconds", lambda *given: (0.002, 0.001))
    text = str(bslite.report(stepped(pictures())))
    assert "both passes measured 2.000 ms, torch 1.000 ms" in text
    assert "runs in torch: every part of it is faster in torch" in text
    assert "saves" not in text
    left = stepped(by_sign())
    (kind,) = bslite.report(left).training
    assert "torch.export cannot trace it" in kind.reason
    assert "runs in torch: model" in str(bslite.report(left))


def test_an_explanation_has_both_passes() -> None:
    explained = bslite.explain(stepped(pictures(), tune=False), runs=1)
    ((forward, backward),) = explained.training
    assert str(explained).count(" pass\n") == 2
    assert "conv2d_grad_weight" in str(backward)
    assert "conv2d_grad_weight" not in str(forward)
    assert len(explained.as_dict()["training"][0]) == 2


@pytest.mark.parametrize("share", [2.0, 0.6, 0.3, 0.0])
def test_a_budget_is_kept_and_changes_no_number(share: float) -> None:
    torch.manual_seed(0)
    net = pictures()
    free = bslite.report(stepped(net, tune=False)).training[0].parts[0]
    budget = int(share * free.saved_bytes)
    (part,) = bslite.report(stepped(net, memory=budget)).training[0].parts
    assert part.part.seconds is None
    assert part.saved_bytes <= budget
    assert (part.saved == free.saved) == (share > 1)
    net.zero_grad()
    alike(net, [(torch.randn(4, 3, 9, 9),) for _ in range(2)], memory=budget)


def test_a_budget_is_shared_by_parts() -> None:
    def forward(m: Any, x: Tensor) -> Tensor:
        return m.b(torch.special.i0e(m.a(x)))

    def block(width: int) -> nn.Module:
        convs = nn.Conv2d(width, 8, 3, padding=1), nn.Conv2d(8, 8, 3)
        return nn.Sequential(convs[0], nn.SiLU(), convs[1], nn.SiLU())

    ours = stepped(Made(forward, a=block(3), b=block(8)), memory=40_000)
    parts = bslite.report(ours).training[0].parts
    assert len(parts) == 2
    assert 0 < sum(part.saved_bytes for part in parts) <= 40_000


@pytest.mark.parametrize("memory", [-1, 2.5, True, "much"])
def test_a_wrong_budget_is_an_error(memory: Any) -> None:
    with pytest.raises(InputError, match="is not a number of bytes"):
        bslite.optimize(nn.Linear(2, 2), training=True, memory=memory)


def test_what_is_detached_keeps_its_part_whole() -> None:
    """A straight-through estimate, and a target without gradients, are one part with what is around them."""

    def forward(m: Any, x: torch.Tensor) -> Any:
        h = m.a(x)
        y = m.b(h + (h.round() - h).detach())
        return y, (y - h.detach()).square().mean()

    net = Made(forward, a=nn.Linear(6, 6), b=nn.Linear(6, 6))
    alike(net, [(torch.randn(4, 6),)] * 2)
    ours = bslite.optimize(net.train(), training=True, fallback="silent", tune=False)
    step(ours, [torch.randn(4, 6)])
    (told,) = bslite.report(ours).training
    assert (len(told.parts), told.torch_share) == (1, 0.0)


FLAT: dict[str, Any] = {
    "round": lambda a, b: a.round() * b,
    "sign": lambda a, b: a.sign() + b,
    "only rounded": lambda a, b: (a * b).floor(),
    "floor of a quotient": lambda a, b: torch.div(a, b, rounding_mode="floor") + b,
    "sign of another": lambda a, b: torch.copysign(b, a),
    "condition": lambda a, b: torch.where(a > 0, b, -b),
    "place": lambda a, b: a.argmax(1, keepdim=True) * b,
    "count": lambda a, b: torch.linalg.vector_norm(a, 0) * b,
}


@pytest.mark.parametrize("function", FLAT.values(), ids=FLAT)
def test_gradients_are_zeros_or_none_as_in_torch(function: Any) -> None:
    """Of what has a slope of 0 everywhere, and of what has none."""
    net = Made(lambda m, x: function(m.a(x), m.b(x)), a=nn.Linear(6, 6), b=nn.Linear(6, 6))
    alike(net, [(torch.randn(4, 6),)] * 2)


def test_a_count_alone_may_go_backwards() -> None:
    net = Made(lambda m, x: torch.linalg.vector_norm(m.a(x), 0), a=nn.Linear(6, 6))
    ours = bslite.optimize(net.train(), training=True, fallback="silent", tune=False)
    ours(torch.randn(4, 6)).backward()
    assert ours.a.weight.grad is None


def test_outputs_share_memory_where_one_is_detached() -> None:
    net = Made(lambda m, x: (lambda y: (y, y.detach()))(m.a(x)), a=nn.Linear(6, 6))
    ours = bslite.optimize(net.train(), training=True, fallback="silent", tune=False)
    for _ in range(2):
        y, apart = ours(torch.randn(4, 6))
        assert (y.requires_grad, apart.requires_grad) == (True, False)
        assert y.data_ptr() == apart.data_ptr()


def test_a_wrong_choice_is_an_error() -> None:
    with pytest.raises(InputError, match="tune is 'always', expected True or False"):
        bslite.optimize(nn.Linear(2, 2), tune="always")  # type: ignore[arg-type]


def test_what_is_not_trained_is_an_error_if_torch_is_not_allowed() -> None:
    net = bslite.optimize(by_sign().train(), training=True, fallback="error")
    with pytest.raises(UnsupportedError, match=r"torch.export cannot trace it"):
        net(torch.randn(4, 3, 9, 9))
