"""Measurements, and the tables and pictures of them: see benchmarks/README.md."""
