"""The drivers of the devices, and the reason where a device has none."""

import functools
import importlib.metadata
import importlib.util
from typing import Any

from bslite.engines.cuda.driver import Driver
from bslite.engines.cuda.gpu.driver import RELAXED, GpuDriver
from bslite.errors import EngineError
from bslite.explore.gpu import GpuMachine

LEAST_CAPABILITY = (8, 0)  # kernels use max.NaN
#: Float32 multiply-adds of an SM per cycle, by compute capability; 128 of all others.
LANES = {(8, 0): 64}
#: TF32 multiply-adds of an SM's tensor cores per cycle (data sheets), where three of them are faster than one
#: of float32. Measured on 9.0 only.
TENSOR_LANES = {(8, 0): 512, (9, 0): 1024}


def driver_for(device: int = 0) -> Driver:
    """The driver of a device. EngineError if it cannot be used, saying why."""
    return _driver(device)


@functools.cache
def _driver(device: int) -> Driver:
    try:
        from bslite.kernels.cuda.runtime import device as numba_cuda
    except Exception as e:  # of versions that do not go together, anything
        why = "it is not installed"
        if importlib.util.find_spec("numba_cuda"):
            why = f"{_version('numba-cuda')} beside numba {_version('numba')}: {type(e).__name__}: {e}"
        raise EngineError(
            f"backend 'cuda' needs the package numba-cuda ({why}): pip install 'bslite[cuda]'"
        ) from None
    if numba_cuda.SIMULATED:
        from bslite.engines.cuda.simulated import SimulatedDriver

        if device:
            raise EngineError(f"there is no device cuda:{device}; the simulator is cuda:0")
        return SimulatedDriver()
    relaxed = numba_cuda.binding.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    return open_gpu(device, numba_cuda.api, _toolkit(), relaxed=relaxed)


def _toolkit() -> int:
    """The CUDA release, such as 13, that numba-cuda's compiler is of; 0 if that is not known."""
    try:
        return int(_version("cuda-bindings").partition(".")[0])
    except ValueError:
        return 0


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "of no version"


def open_gpu(
    device: int, api: Any, toolkit: int, torch: Any = "if imported", relaxed: Any = RELAXED
) -> Driver:
    """A GPU through the CUDA driver's functions. EngineError if it is missing, too old or not there."""
    try:
        works = api.is_available
    except Exception as e:  # what it raises when it is asked for the first time
        why, works = str(e), False
    else:
        why = str(api.initialization_error)
    if not works:
        raise EngineError(f"backend 'cuda': there is no CUDA device here ({' '.join(why.split())})")
    version = api.get_version()
    if version[0] < toolkit:
        raise EngineError(
            f"backend 'cuda': the NVIDIA driver supports CUDA {version[0]}.{version[1]}, numba-cuda's "
            f"compiler is of CUDA {toolkit}; update the driver, or pip install 'numba-cuda[cu{version[0]}]'"
        )
    count = int(api.get_device_count())
    if device >= count:
        raise EngineError(f"there is no device cuda:{device}; this machine has {count}")
    found = api.get_device(device)
    capability = tuple(found.compute_capability)
    if capability < LEAST_CAPABILITY:
        have, need = (".".join(map(str, c)) for c in (capability, LEAST_CAPABILITY))
        raise EngineError(f"cuda:{device} has compute capability {have}; bslite needs {need}")
    name = found.name.decode() if isinstance(found.name, bytes) else str(found.name)
    return GpuDriver(device, api, machine_of(found), name, (capability[0], capability[1]), torch, relaxed)


def machine_of(device: Any) -> GpuMachine:
    """The machine model by the attributes the driver gives; latencies are those of the model's defaults."""
    default = GpuMachine()
    sms, clock = int(device.MULTIPROCESSOR_COUNT), 1e3 * float(device.CLOCK_RATE)
    lanes = LANES.get(tuple(device.compute_capability), 128)
    bandwidth = 2e3 * float(device.MEMORY_CLOCK_RATE) * float(device.GLOBAL_MEMORY_BUS_WIDTH) / 8
    recent = tuple(device.compute_capability) >= (9, 0)
    per_cycle = default.l2_bandwidth / (default.sms * default.clock)
    return GpuMachine(
        sms=sms,
        lanes=lanes,
        maxima=3 if recent else 2,
        tensor_lanes=TENSOR_LANES.get(tuple(device.compute_capability), 0),
        clock=clock or default.clock,
        # what the recurrent kernels can keep there; before 9.0 they need more registers for all else
        register_bytes=int(device.MAX_REGISTERS_PER_MULTIPROCESSOR) * (11 if recent else 4) // 4,
        shared_bytes=int(device.MAX_SHARED_MEMORY_PER_BLOCK_OPTIN),
        l2_bytes=int(device.L2_CACHE_SIZE),
        l2_bandwidth=per_cycle * sms * (clock or default.clock),
        memory_bandwidth=bandwidth or default.memory_bandwidth,
        block_threads=int(device.MAX_THREADS_PER_BLOCK),
    )


def why_none(device: int = 0) -> str:
    """Why a device cannot be used; empty if it can."""
    try:
        driver_for(device)
    except EngineError as e:
        return str(e)
    return ""
