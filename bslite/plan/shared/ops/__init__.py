"""Lowerings that are the same on every target: changes of strides, and ops built from other steps."""
