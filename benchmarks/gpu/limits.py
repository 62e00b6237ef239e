"""What the device can do at best, measured now: float32 SGEMM and copying."""

from dataclasses import dataclass

from benchmarks.gpu.device import Host
from bslite.spec import Array

SIZE, BUFFER = 8192, 1 << 30  # rows of the square matrices; bytes, well beyond any cache
SMALL_SIZE, SMALL_BUFFER = 256, 1 << 20  # of a rehearsal
ROUNDS = 5


@dataclass(frozen=True)
class Limits:
    """Flop/s of SGEMM, bytes/s (read plus written) of a copy."""

    sgemm: float
    copy: float

    def floor(self, flops: float, bytes_: float) -> float:
        """Seconds that so much arithmetic, or so many bytes, take at least."""
        return max(flops / self.sgemm, bytes_ / self.copy)


def copying(device: Host, x: Array) -> float:
    """Seconds of copying x on the device, as it lies."""
    source = device.put(device.torch.from_numpy(x))
    target = device.torch.empty_like(source)

    def copy() -> None:
        target.copy_(source)

    device.seconds(copy, 2)
    return min(device.seconds(copy, 20) for _ in range(ROUNDS))


def measure(device: Host) -> Limits:
    """The best of a few tries: what disturbs one only ever makes it slower."""
    torch, rehearsal = device.torch, device.kind == "cpu"
    size, buffer = (SMALL_SIZE, SMALL_BUFFER) if rehearsal else (SIZE, BUFFER)
    a, b = (device.random(size, size) for _ in range(2))
    product = torch.empty_like(a)
    source = device.random(buffer // 4)  # zeros may go faster
    target = torch.empty_like(source)

    def multiply() -> None:
        torch.mm(a, b, out=product)

    def copy() -> None:
        target.copy_(source)

    for call in (multiply, copy):
        device.seconds(call, 2)
    sgemm = 2.0 * size**3 / min(device.seconds(multiply, 3) for _ in range(ROUNDS))
    return Limits(sgemm, 2.0 * buffer / min(device.seconds(copy, 10) for _ in range(ROUNDS)))
