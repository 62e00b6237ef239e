"""``python -m bslite``: the command line."""

from bslite.cli import main

main()
