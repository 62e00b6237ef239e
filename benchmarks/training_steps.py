"""Networks in training: a step of each engine, its gradients in three precisions, and its arithmetic."""

import copy
import time
from typing import Any

import bslite
from benchmarks import roofline
from benchmarks.peers import nets
from benchmarks.rivals import Unavailable
from bslite.spec.table import layer_rows
from bslite.verification import FACTOR, TINY

NETWORKS = ("resnet18", "resnet50", "mobilenet_v2", "densenet121", "efficientnet_b0", "vgg11")
GATES = {"LSTM": 4, "GRU": 3}
NAMES = (*NETWORKS, *GATES)
HIDDEN, STEPS, CLASSES = 512, 25, 10
OURS, EAGER, LAST = "bslite", "torch", "torch channels_last"
#: torch's forms, with the options of torch.compile where there are some. The layout is one of images.
PEERS: dict[str, dict[str, Any] | None] = {
    EAGER: None,
    LAST: None,
    "inductor": {},
    "inductor channels_last": {"force_layout_optimization": True},
}
CHECKED = 2e9  # bytes that autograd may save in the step in float64

Parts = tuple[float, float, float]  # seconds of forward pass with loss, backward pass, optimizer


def made(name: str) -> Any:
    """A module in training mode that gives scores of classes."""
    import torch

    torch.manual_seed(0)
    if name in NETWORKS:
        return nets.module(name, 0).train()

    class Last(torch.nn.Module):
        """The last step of a recurrent layer, as scores."""

        def __init__(self) -> None:
            super().__init__()
            self.cells = getattr(torch.nn, name)(HIDDEN, HIDDEN)
            self.scores = torch.nn.Linear(HIDDEN, CLASSES)

        def forward(self, x: Any) -> Any:
            return self.scores(self.cells(x)[0][-1])

    return Last().train()


def example(name: str, batch: int, side: int) -> tuple[Any, Any]:
    """What a step takes: inputs, and the classes they belong to."""
    import torch

    torch.manual_seed(1)
    shape = (batch, 3, side, side) if name in NETWORKS else (STEPS, batch, HIDDEN)
    return torch.randn(shape), torch.randint(0, CLASSES, (batch,))


def engines(name: str, peers: tuple[str, ...]) -> list[str]:
    """bslite, and those of ``peers`` that are another form of this network."""
    return [OURS, *(peer for peer in peers if name in NETWORKS or not peer.endswith("channels_last"))]


class Trained:
    """A module with its optimizer; ``step()`` gives the seconds of its three parts."""

    def __init__(self, module: Any, x: Any, y: Any) -> None:
        import torch

        self.module, self.x, self.y = module, x, y
        self.optimizer = torch.optim.SGD(module.parameters(), lr=1e-3, momentum=0.9, fused=True)

    def loss(self) -> Any:
        """Of a forward pass."""
        from torch.nn.functional import cross_entropy

        return cross_entropy(self.module(self.x), self.y)

    def step(self) -> Parts:
        """One step."""
        self.optimizer.zero_grad()
        start = time.perf_counter()
        loss = self.loss()
        between = time.perf_counter()
        loss.backward()
        after = time.perf_counter()
        self.optimizer.step()
        return between - start, after - between, time.perf_counter() - after

    def gradients(self) -> Any:
        """All gradients of a step that changes nothing, in a row."""
        import torch

        torch.manual_seed(2)  # of dropouts
        self.module.zero_grad()
        self.loss().backward()
        return torch.cat([p.grad.flatten() for p in self.module.parameters()])

    def saved_bytes(self) -> int:
        """What torch's autograd saves in a forward pass, beyond parameters, buffers and input: every storage
        once.
        """
        import torch

        own = {t.untyped_storage().data_ptr() for t in self.module.state_dict().values()}
        own |= {t.untyped_storage().data_ptr() for t in (self.x, self.y)}
        seen: dict[int, Any] = {}  # holds them: an address that is free would come again

        def pack(saved: Any) -> Any:
            seen[saved.untyped_storage().data_ptr()] = saved
            return saved

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda saved: saved):
            loss = self.loss()
        found = sum(t.untyped_storage().nbytes() for at, t in seen.items() if at not in own)
        del loss
        return found


def trained(module: Any, x: Any, y: Any, engine: str, threads: int) -> Trained:
    """A copy of ``module`` in ``engine``. Raises Unavailable where torch finds no compiler for inductor."""
    import torch

    module = copy.deepcopy(module)
    if engine == OURS:
        wrapped = bslite.optimize(module, training=True, tune=False, threads=threads, fallback="silent")
        return Trained(wrapped, x, y)
    if engine == LAST and x.ndim == 4:
        form = torch.channels_last
        return Trained(module.to(memory_format=form), x.contiguous(memory_format=form), y)
    options = PEERS[engine]
    if options is not None:
        compiler()
        torch._dynamo.reset()
        module = torch.compile(module, options=options)
    return Trained(module, x, y)


def compiler() -> str:
    """The C++ compiler that inductor takes. Raises Unavailable if there is none."""
    from torch._inductor import cpp_builder, exc

    try:
        return str(cpp_builder.get_cpp_compiler())
    except exc.InvalidCxxCompiler as e:
        raise Unavailable("no C++ compiler for inductor") from e


def checked_batch(saved: int, batch: int, limit: float = CHECKED) -> int:
    """The largest half of a half of ``batch`` whose step in float64 saves at most ``limit`` bytes, if one
    image saves ``saved`` in float32; two at least, for batch norm.
    """
    while batch > 2 and 2 * saved * batch > limit:
        batch //= 2
    return batch


def errors(name: str, batch: int, side: int, threads: int) -> tuple[dict[str, float], int]:
    """Distances of all gradients together from those in float64, relative, of bslite and torch eager; and the
    batch they were computed at.
    """
    module = made(name)
    one = trained(module, *example(name, 2, side), EAGER, threads).saved_bytes() // 2
    batch = checked_batch(one, batch)
    x, y = example(name, batch, side)
    exact = Trained(copy.deepcopy(module).double(), x.double(), y).gradients()
    found = {
        engine: trained(module, x, y, engine, threads).gradients().double()
        for engine in engines(name, (EAGER, LAST))
    }
    return {engine: float((own - exact).norm() / exact.norm()) for engine, own in found.items()}, batch


def wrong(errors: dict[str, float]) -> str | None:
    """Why the gradients of bslite are wrong, or None: more than `FACTOR` times as far from float64 as those
    of torch, the farther of its two layouts.
    """
    bound = FACTOR * max(error for engine, error in errors.items() if engine != OURS) + TINY
    ours = errors[OURS]
    return None if ours <= bound else f"wrong gradients: error {ours:.1e}, bound {bound:.1e}"


def arithmetic(name: str, batch: int, side: int) -> float:
    """Flops that a step takes at least."""
    if name in GATES:
        product = (
            2.0 * GATES[name] * HIDDEN * HIDDEN * STEPS * batch
        )  # with the inputs; with the states as much
        return step_flops(2 * product + 2 * HIDDEN * CLASSES * batch, product)
    x = example(name, 2, side)[0]
    spec = nets.Net(name, nets.module(name, 0), x.numpy()).spec
    shape = batch, *x.shape[1:]
    forward, _ = roofline.work(spec, batch, shape)
    first = next(row.flops for row in layer_rows(spec, [shape]) if row.flops)
    return step_flops(forward, float(first))


def step_flops(forward: float, first: float) -> float:
    """Forward pass, gradients of the data and of the weights, each as much; none of the first layer's data,
    which takes ``first``.
    """
    return 3 * forward - first
