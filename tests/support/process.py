"""Python in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path


def printed(code: str | Path, **env: str | None) -> str:
    """What ``python`` prints, which must succeed."""
    done = python(code, **env)
    assert done.returncode == 0, done.stderr
    return done.stdout


def python(code: str | Path, *arguments: str, **env: str | None) -> subprocess.CompletedProcess[str]:
    """Run ``code``, or a script, in a fresh interpreter, in the tests' folder. None: without a variable."""
    return subprocess.run(
        [sys.executable, *([code] if isinstance(code, Path) else ["-c", code]), *arguments],
        env={k: v for k, v in {**os.environ, **env}.items() if v is not None},
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[1],
        timeout=600,
    )
