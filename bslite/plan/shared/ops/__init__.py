"""Lowerings that are the same on every target: changes of strides, and what is made of other steps."""
