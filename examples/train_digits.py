"""Train a small convolutional network on handwritten digits, in less than a minute.

    pip install -c constraints.txt -e ".[examples]"
    python examples/train_digits.py

It is a training loop of torch as you know it. One line of it is bslite's: `bslite.optimize`. From
there on the layers run forwards and backwards in bslite, while the parameters, the
optimizer, the schedule and everything else stay torch's.
"""

import argparse
import copy
import time
from collections.abc import Sequence

import matplotlib

matplotlib.use("Agg")  # a file, no window
import matplotlib.pyplot as plt
import torch
from rich.progress import track
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import bslite

BATCH = 64


def digits() -> list[Tensor]:
    """Images [N, 1, 8, 8] of 0 to 1 to train and to test with, then the digits that they show."""
    data = load_digits()
    images = torch.tensor(data.images / 16, dtype=torch.float32)[:, None]
    labels = torch.tensor(data.target)
    found: list[Tensor] = train_test_split(images, labels, test_size=0.2, random_state=0, stratify=labels)
    return found


def network() -> nn.Module:
    """Three convolutions with batch norms, a pool, a dropout and a score for each digit."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(64, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(),
        nn.Flatten(), nn.Dropout(0.3), nn.Linear(64 * 4 * 4, 10),
    )  # fmt: skip


def accuracy(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    """The share of images whose digit the model finds."""
    model.eval()
    with torch.no_grad():
        right = model(images).argmax(1) == labels
    model.train()
    return right.float().mean().item()


def train(model: nn.Module, data: Sequence[Tensor], epochs: int) -> tuple[list[float], list[float]]:
    """The loss of every step, and the accuracy on the test images after every epoch."""
    images, tests, labels, answers = data
    steps = len(images) // BATCH  # the images that fill no batch are left for another epoch
    # fused: one pass over all parameters, a few times as fast as torch's other ways on a CPU
    optimizer = torch.optim.Adam(model.parameters(), weight_decay=1e-5, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=epochs * steps)
    losses, found = [], []
    for _ in track(range(epochs), "training"):
        for batch in torch.randperm(len(images))[: steps * BATCH].split(BATCH):
            loss = cross_entropy(model(images[batch]), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
        found.append(accuracy(model, tests, answers))
    return losses, found


def step_times(models: Sequence[nn.Module], images: Tensor, labels: Tensor, rounds: int = 30) -> list[float]:
    """Milliseconds of a step of each model, forwards and backwards: the quickest, taken in turns."""
    times = []
    for _ in range(rounds):
        for model in models:
            start = time.perf_counter()
            cross_entropy(model(images[:BATCH]), labels[:BATCH]).backward()
            times.append(1e3 * (time.perf_counter() - start))
    return [min(times[i :: len(models)]) for i in range(len(models))]


def plot(losses: Sequence[float], found: Sequence[float], file: str) -> None:
    """Loss and accuracy side by side."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.5), layout="constrained")
    left.semilogy(losses, linewidth=1)
    left.set(title="Loss", xlabel="step")
    right.plot(range(1, len(found) + 1), [100 * share for share in found], marker="o")
    right.set(title="Digits found in test images, %", xlabel="epoch")
    for axes in (left, right):
        axes.grid(alpha=0.3)
    figure.savefig(file, dpi=150)
    plt.close(figure)


def main(arguments: Sequence[str] | None = None) -> float:
    """Train, plot, compare with torch; returns the accuracy on the test images."""
    parser = argparse.ArgumentParser(description="Train a network on handwritten digits with bslite.")
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--plot", default="digits.png", help="where the plot goes (digits.png)")
    options = parser.parse_args(arguments)

    torch.set_num_threads(options.threads)  # bslite takes as many
    torch.manual_seed(0)
    data = digits()
    plain = network()
    model = bslite.optimize(copy.deepcopy(plain))  # the one line that is bslite's
    losses, found = train(model, data, options.epochs)
    plot(losses, found, options.plot)

    images, tests, labels, _ = data
    print(f"{100 * found[-1]:.1f} % of {len(tests)} test images are right; the plot is {options.plot}")
    ours, theirs = step_times([model, plain], images, labels)
    print(f"a step of {BATCH} images: {ours:.1f} ms in bslite, {theirs:.1f} ms in torch")
    return found[-1]


if __name__ == "__main__":
    main()
