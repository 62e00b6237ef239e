"""DeepBench's recurrent layers, served: ``python -m benchmarks.deepbench --help``."""
