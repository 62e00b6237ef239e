"""Measurements: kernels and networks by pytest-benchmark, other engines by ``python -m benchmarks.peers``."""
