"""Engines execute plans. Imported lazily: they bring in Numba."""
