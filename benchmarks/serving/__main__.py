"""``python -m benchmarks.serving``."""

import sys

from benchmarks.serving.command import main

if __name__ == "__main__":
    sys.exit(main())
