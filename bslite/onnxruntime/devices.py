"""Names of memory and devices, for programs that say where values lie: here, on the host."""

from dataclasses import dataclass
from enum import IntEnum


class OrtAllocatorType(IntEnum):
    """How onnxruntime takes memory."""

    INVALID = -1
    ORT_DEVICE_ALLOCATOR = 0
    ORT_ARENA_ALLOCATOR = 1


class OrtMemType(IntEnum):
    """What memory is for."""

    CPU_INPUT = -2
    CPU_OUTPUT = -1
    DEFAULT = 0


@dataclass(frozen=True)
class OrtMemoryInfo:
    """A kind of memory, by name."""

    name: str
    allocator_type: OrtAllocatorType = OrtAllocatorType.ORT_ARENA_ALLOCATOR
    device_id: int = 0
    mem_type: OrtMemType = OrtMemType.DEFAULT


@dataclass(frozen=True)
class OrtDevice:
    """A device, by kind and number."""

    kind: str
    number: int = 0

    @staticmethod
    def make(ort_device_name: str, device_id: int, vendor_id: int = -1) -> "OrtDevice":
        """The device of that kind and number."""
        return OrtDevice(ort_device_name, device_id)

    def device_type(self) -> str:
        """Its kind, "cpu" for instance."""
        return self.kind

    def device_id(self) -> int:
        """Its number among those of its kind."""
        return self.number
