"""Python in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path


def python(code: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run ``code`` in a fresh interpreter, in the folder of the tests."""
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[1],
        timeout=600,
    )
