"""Kernels as machine code, compiled without a GPU and kept on disk for later processes.

numba-cuda compiles a kernel to PTX; nvJitLink, which is the assembler ``ptxas`` as a library, compiles that
to machine code. A kernel's files lie in a folder named by a digest of its sources and compilers, beside those
of the CPU's kernels.
"""

import functools
import hashlib
import importlib.metadata
import json
import re
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from bslite import cache
from bslite.kernels import sources
from bslite.kernels.cuda.runtime.kernel import KERNELS

#: numba-cuda takes the target of a compilation from a global (`device.compile_ptx`).
_one = threading.Lock()


class Code(NamedTuple):
    """A module for the driver to load, and the name of the kernel in it."""

    image: bytes
    entry: str


def code_of(name: str, capability: tuple[int, int], variant: Mapping[str, Any]) -> Code:
    """Return the code of a kernel's variant for GPUs of a compute capability: from disk, or compiled now."""
    file = _file(name, capability, variant)
    if file is not None and (found := _read(file)) is not None:
        return found
    with _one:
        ptx = KERNELS[name].ptx(capability, **variant)
    made = Code(image_of(ptx, capability), entry_of(ptx))
    if file is not None:
        with suppress(OSError):  # if the disk is full, say, a later process compiles it again
            cache.write(file, made.entry.encode() + b"\n" + made.image)
    return made


def image_of(ptx: str, capability: tuple[int, int]) -> bytes:
    """Return machine code, or the PTX itself for a GPU that is newer than the assembler: the GPU's driver
    then assembles it when it is loaded.
    """
    try:
        return assembled(ptx, capability)[0]
    except Exception as e:
        if "UNRECOGNIZED_ARCH" not in str(e):
            raise
        return ptx.encode() + b"\0"


def assembled(ptx: str, capability: tuple[int, int]) -> tuple[bytes, str]:
    """Return machine code and the assembler's report: registers, stack, shared memory."""
    from cuda.bindings import nvjitlink

    linker = nvjitlink.create(2, ["-arch=sm_{}{}".format(*capability), "-verbose"])
    try:
        code = ptx.encode()
        nvjitlink.add_data(linker, nvjitlink.InputType.PTX, code, len(code), "kernel")
        nvjitlink.complete(linker)
        report = bytearray(nvjitlink.get_info_log_size(linker))
        nvjitlink.get_info_log(linker, report)
        image = bytearray(nvjitlink.get_linked_cubin_size(linker))
        nvjitlink.get_linked_cubin(linker, image)
    finally:
        nvjitlink.destroy(linker)
    return bytes(image), report.decode()


def entry_of(ptx: str) -> str:
    """Return the name of the one kernel in the PTX."""
    (name,) = re.findall(r"\.entry\s+([\w$]+)", ptx)
    return str(name)


@functools.cache
def fingerprint(*kernels: str) -> str:
    """Return a digest of these kernels' sources (all, if none is named) and of the compilers' versions."""
    roots = {home for name in kernels or KERNELS for home in sources.homes_of(KERNELS[name].make)}
    digest = hashlib.sha256(sources.digest(roots).encode())
    for package in ("numba", "numba-cuda", "nvidia-nvvm", "nvidia-nvjitlink", "cuda-bindings"):
        try:
            digest.update(f"{package} {importlib.metadata.version(package)}".encode())
        except importlib.metadata.PackageNotFoundError:
            continue
    return digest.hexdigest()[:16]


def _file(name: str, capability: tuple[int, int], variant: Mapping[str, Any]) -> Path | None:
    """Return the file that keeps a variant; None without a cache folder or a known source."""
    try:
        digest = fingerprint(name)
    except LookupError:
        return None
    folder = cache.version_folder(cache.cache_dir() / "cuda", digest)
    if folder is None:
        return None
    which = hashlib.sha256(json.dumps([name, capability, sorted(variant.items())]).encode()).hexdigest()[:24]
    return folder / f"{name}-{which}.cubin"


def _read(file: Path) -> Code | None:
    """Return the code in a file if it is whole: machine code is ELF, PTX has a comment first and a 0 last."""
    try:
        entry, _, image = file.read_bytes().partition(b"\n")
    except OSError:
        return None
    whole = image.startswith(b"\x7fELF") or (image.startswith(b"//") and image.endswith(b"\0"))
    return Code(image, entry.decode(errors="replace")) if whole else None
