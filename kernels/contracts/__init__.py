"""The contracts between planner and kernels: one typed record for each kind of step. They import neither
Numba nor the planner.

`record` defines a record; `cpu` has the records of CPU steps, `cuda` those of GPU launches, by family; what
both targets share (activations, reducers, ...) stands beside them.
"""
