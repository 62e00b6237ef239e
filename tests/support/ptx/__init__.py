"""A GPU for tests: runs the PTX that numba-cuda makes of our kernels on the CPU, warp by warp.

numba.cuda's simulator runs the Python a kernel is written in; this runs what the compiler makes of it, so
types, index arithmetic, alignment and divergence are the real ones. It is fast enough for whole networks,
and watches what hardware leaves undefined: accesses outside an array or not on a multiple of their width,
races in shared and in global memory, shared memory that nobody wrote, barriers and shuffles that not
all threads reach. It counts instructions, passes over shared memory (bank conflicts) and sectors of memory.

`text` reads PTX, `semantics` says what each instruction computes, `loop` makes of both an interpreter that
Numba compiles, `machine` launches kernels on it.
"""
