"""bslite beside the other engines people use on a CPU: ``python -m benchmarks.peers --help``."""
