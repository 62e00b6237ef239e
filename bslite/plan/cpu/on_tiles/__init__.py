"""Layers on a unit that multiplies tiles of bfloat16: which ones, how they are cut, and their prices."""
