"""What is not installed is named, with the command that installs it: no import error reaches a user."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from support.process import printed, python

#: A process in which packages are missing as if they had never been installed.
WITHOUT = """
import sys
class But:
    def __init__(self, finder):
        self.finder = finder
    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in {names!r} else self.finder.find_spec(name, path, target)
sys.meta_path[:] = map(But, sys.meta_path)
"""


def told(names: Sequence[str], code: str) -> str:
    """The message of the bslite error that ``code`` ends in where the packages ``names`` are missing."""
    ending = "".join(f"    {line}\n" for line in code.strip().splitlines())
    script = (
        f"{WITHOUT.format(names=tuple(names))}\nimport bslite, numpy as np\ntry:\n{ending}"
        "except bslite.BsliteError as e:\n    print(e)\nelse:\n    print('no error')\n"
    )
    return printed(script)


def command(names: Sequence[str], *arguments: str) -> tuple[int, str]:
    """Exit code and stderr of the command line where the packages are missing."""
    done = python(
        f"{WITHOUT.format(names=tuple(names))}\nfrom bslite.cli import main\nmain({list(arguments)!r})",
        COLUMNS="80",
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("package", "code", "remedy"),
    [
        ("onnx", "bslite.from_onnx('model.onnx')", "pip install 'bslite[onnx]'"),
        ("onnx", "bslite.compile('model.onnx')", "pip install 'bslite[onnx]'"),
        ("onnx", "import bslite.onnx.backend", "pip install 'bslite[onnx]'"),
        ("onnx", "import bslite.onnxruntime as ort\nort.InferenceSession(b'')", "pip install 'bslite[onnx]'"),
        ("torch", "bslite.optimize(None)", "pip install 'bslite[torch]'"),
        ("torch", "bslite.from_torch(None, ())", "pip install 'bslite[torch]'"),
        ("ray", "import bslite.ray\nbslite.ray.deployment('model.onnx')", "pip install 'bslite[ray]'"),
        (
            "plotly",
            "from bslite.explanation.views.page import page\npage(None)",
            'pip install "bslite[report]"',
        ),
    ],
)
def test_a_missing_package_is_named(package: str, code: str, remedy: str) -> None:
    message = told([package], code)
    assert remedy in message
    assert package in message


def test_weights_that_torch_wrote_name_torch(tmp_path: Path) -> None:
    path = tmp_path / "weights.pth"
    path.write_bytes(b"anything")
    assert "pip install torch" in told(["torch"], f"bslite.from_state_dict('resnet18', {str(path)!r})")


@pytest.mark.parametrize("package", ["typer", "rich"])
def test_the_command_line_names_what_it_lacks(package: str) -> None:
    code, message = command([package], "info")
    assert code == 2
    assert (
        message.strip()
        == f'bslite: the command line needs {package}; install it with: pip install "bslite[cli]"'
    )


SERVED = ("httptools", "orjson", "prometheus_client", "starlette", "uvicorn")


@pytest.mark.parametrize("package", SERVED)
def test_serve_names_what_it_lacks(package: str) -> None:
    pytest.importorskip("typer")
    for other in SERVED[: SERVED.index(package)]:
        pytest.importorskip(other)
    code, message = command([package], "serve", "model.onnx")
    assert code == 2
    assert f"bslite serve needs {package}" in message
    assert 'pip install "bslite[cli,serve]"' in message


def test_grpc_is_named() -> None:
    pytest.importorskip("typer")
    for other in SERVED:
        pytest.importorskip(other)
    code, message = command(["grpc"], "serve", "model.onnx", "--grpc-port", "0")
    assert code == 2
    assert 'pip install "bslite[cli,serve,grpc]"' in " ".join(message.split())


def test_a_picture_names_pillow(tmp_path: Path) -> None:
    pytest.importorskip("typer")
    code, message = command(
        ["PIL"], "run", "--arch", "squeezenet1_1", "--input", str(tmp_path / "picture.png")
    )
    assert code == 2
    assert 'needs Pillow; pip install "bslite[cli]"' in " ".join(message.split())


def test_a_model_is_tried_without_any_peer() -> None:
    pytest.importorskip("typer")
    code = (
        f"{WITHOUT.format(names=('torch', 'onnxruntime', 'openvino'))}\nfrom bslite.cli import main\n"
        "main(['try', '--arch', 'squeezenet1_1', '--shape', '1,3,32,32'])"
    )
    done = python(code, COLUMNS="80")
    assert done.returncode == 0, done.stderr
    assert "squeezenet1_1, random weights of seed 0: right" in done.stdout


def test_without_arguments_there_is_help() -> None:
    pytest.importorskip("typer")
    done = python("import runpy; runpy.run_module('bslite', run_name='__main__')", COLUMNS="80")
    shown = done.stdout + done.stderr
    assert "Usage: bslite" in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_messages_fit_a_terminal() -> None:
    from bslite.cli import fitted

    words = "one two three " * 12
    text = fitted(f'bslite: {words}\n  3 x Odd; {words}: pip install "bslite[cli]" {words}')
    assert max(map(len, text.splitlines())) <= 80
    assert 'pip install "bslite[cli]"' in text
    assert " ".join(text.split()) == " ".join(
        f'bslite: {words} 3 x Odd; {words}: pip install "bslite[cli]" {words}'.split()
    )
    path = "/".join(["folder"] * 20)
    assert path in fitted(f"bslite: {path}: no such file")
