"""Threads, streams and batch: rules, the tuner's choice and exhaustive search; see `__main__`."""
