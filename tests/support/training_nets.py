"""Small networks that tests train, and batches for them."""

import torch
from torch import Tensor, nn


class Words(nn.Module):
    """An LSTM between layers."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.cells = nn.Embedding(11, 6), nn.LSTM(6, 9, batch_first=True)
        self.last = nn.Linear(9, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.cells(self.table(x))[0][:, -1])


def picture_net(smooth: bool = False) -> nn.Module:
    """``smooth``: functions without kinks behind batch norms, and no bias before them."""
    return nn.Sequential(
        nn.Conv2d(3, 9, 3, stride=2, padding=1, bias=not smooth), nn.BatchNorm2d(9),
        nn.SiLU() if smooth else nn.ReLU(inplace=True), nn.MaxPool2d(2),
        nn.Conv2d(9, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6, momentum=0.3),
        nn.Sigmoid() if smooth else nn.SiLU(), nn.Dropout(0.3), nn.Flatten(), nn.Linear(6 * 9, 5),
    )  # fmt: skip


def images(n: int) -> Tensor:
    return torch.randn(n, 3, 12, 11)


def rows(n: int) -> Tensor:
    return torch.randn(n, 12)
