"""Kernels as machine code, made without a GPU and kept on disk, where later processes find them.

numba-cuda makes PTX of a kernel; nvJitLink, which is the assembler ``ptxas`` as a library, machine code of
that. The files of a kernel lie in a folder named by a digest of the sources and the compilers that they are
made from and by, beside those of the CPU's kernels.
"""

from __future__ import annotations

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

#: numba-cuda is told for whom to compile by way of a global (`device.compile_ptx`).
_one = threading.Lock()


class Code(NamedTuple):
    """A module for the driver to load, and the name of the kernel in it."""

    image: bytes
    entry: str


def code_of(name: str, capability: tuple[int, int], variant: Mapping[str, Any]) -> Code:
    """The code of a kernel's variant for GPUs of a compute capability: from disk, or compiled now."""
    file = _file(name, capability, variant)
    if file is not None and (found := _read(file)) is not None:
        return found
    with _one:
        ptx = KERNELS[name].ptx(capability, **variant)
    made = Code(image_of(ptx, capability), entry_of(ptx))
    if file is not None:
        with suppress(OSError):  # a full disk, say: it is compiled again next time
            cache.write(file, made.entry.encode() + b"\n" + made.image)
    return made


def image_of(ptx: str, capability: tuple[int, int]) -> bytes:
    """Machine code; the PTX itself for a GPU that is newer than the assembler: the driver, which is not,
    assembles it when it is loaded.
    """
    try:
        return assembled(ptx, capability)[0]
    except Exception as e:
        if "UNRECOGNIZED_ARCH" not in str(e):
            raise
        return ptx.encode() + b"\0"


def assembled(ptx: str, capability: tuple[int, int]) -> tuple[bytes, str]:
    """Machine code, and what the assembler reports of it: registers, stack, shared memory."""
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
    """The name of the one kernel in it."""
    (name,) = re.findall(r"\.entry\s+([\w$]+)", ptx)
    return str(name)


@functools.cache
def fingerprint(*kernels: str) -> str:
    """Digest of the sources of these kernels (all, if none is named) and of their compilers' versions."""
    roots = {home for name in kernels or KERNELS for home in sources.homes_of(KERNELS[name].make)}
    digest = hashlib.sha256(sources.digest(roots).encode())
    for package in ("numba", "numba-cuda", "nvidia-nvvm", "nvidia-nvjitlink", "cuda-bindings"):
        try:
            digest.update(f"{package} {importlib.metadata.version(package)}".encode())
        except importlib.metadata.PackageNotFoundError:
            continue
    return digest.hexdigest()[:16]


def _file(name: str, capability: tuple[int, int], variant: Mapping[str, Any]) -> Path | None:
    """The file that keeps a variant; None where nothing can be kept, or the kernel's source is not known."""
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
    """What is kept, if it is whole: machine code is an ELF file, PTX has a comment first and a 0 last."""
    try:
        entry, _, image = file.read_bytes().partition(b"\n")
    except OSError:
        return None
    whole = image.startswith(b"\x7fELF") or (image.startswith(b"//") and image.endswith(b"\0"))
    return Code(image, entry.decode(errors="replace")) if whole else None
