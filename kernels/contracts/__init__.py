"""What planner and kernels agree on: one typed record for each kind of step. Neither Numba nor the planner is
here.

`record` says what a record is; `cpu` has the records of CPU steps, `cuda` those of launches, by family; what
both share (activations, reducers, ...) stands beside them.
"""
