"""Whether tensors have been moved or written to: by address, version counter and sampled words."""

from collections.abc import Iterable
from operator import attrgetter

import torch

from bslite.engines.cpu.writes import Digest

_version = attrgetter("_version")
_data_ptr = torch.Tensor.data_ptr


class Kept:
    """Tensors of which something holds copies; each once, in a fixed order, none without strides."""

    def __init__(self, tensors: Iterable[torch.Tensor]) -> None:
        self.tensors = list({id(t): t for t in tensors if t.layout == torch.strided}.values())
        self._counted = [t for t in self.tensors if not t.is_inference()]
        self._pointers = list(map(_data_ptr, self.tensors))
        self._digest = digest_of(self.tensors)
        self.note()

    def note(self) -> None:
        """Compare values with the present ones from now on."""
        self._versions = list(map(_version, self._counted))
        self._known = self._digest()

    def moved(self) -> bool:
        """Whether a tensor has other memory than at first."""
        return self._pointers != list(map(_data_ptr, self.tensors))

    def written(self) -> bool:
        """Whether they have been written to."""
        return self._versions != list(map(_version, self._counted)) or self.overwritten()

    def overwritten(self) -> bool:
        """Whether sampled words are others: of what has been written, with counters or past them."""
        return self._digest() != self._known


def digest_of(tensors: Iterable[torch.Tensor]) -> Digest:
    """The digest of the CPU tensors among ``tensors``."""
    dense = [t for t in tensors if t.device.type == "cpu" and t.layout == torch.strided and t.numel()]
    dense = [t for t in dense if t.data_ptr()]  # no storage that was made empty
    return Digest((t.data_ptr(), _words(t)) for t in dense)


def _words(tensor: torch.Tensor) -> int:
    """Whole 8-byte words from a tensor's first element to its last."""
    spread = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True)) + 1
    return spread * tensor.element_size() // 8
