"""Records of the kernels that measure a machine."""

from enum import IntEnum

from bslite.kernels.contracts.cpu.sweep import GemmSweep
from bslite.kernels.contracts.record import Operand, StepRecord


class Mode(IntEnum):
    """The quantity that the stream kernel measures."""

    READ = 0
    COPY = 1
    CHAIN = 2
    FMA = 3
    TURNS = 4
    MEET = 5


class Stream(StepRecord, kernel="stream"):
    """The stream kernel, which measures a machine's memory and clock."""

    data: Operand
    data_item: int
    target: Operand
    bytes: int
    repeats: int
    mode: Mode
    sink: Operand
    a: int
    b: int


class Peak(StepRecord, kernel="peak"):
    """The GEMM microkernel on data that stays in L1; an item computes ``repeats`` tiles of ``rows`` rows."""

    data: Operand
    data_item: int
    sweep: GemmSweep
    rows: int
    depth: int
    repeats: int
    offset: int
    lo: float
    hi: float
