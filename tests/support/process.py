"""Python in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path


def python(code: str, *arguments: str, **env: str | None) -> subprocess.CompletedProcess[str]:
    """Run ``code`` in a fresh interpreter, in the folder of the tests; None: without a variable."""
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={k: v for k, v in {**os.environ, **env}.items() if v is not None},
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[1],
        timeout=600,
    )
