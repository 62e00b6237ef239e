"""How an update changes the cell that it meets."""

from bslite.kernels.contracts.choice import Choice


class Reduction(Choice):
    """With ``NONE``, the update replaces the cell. Else the cell becomes the sum, product, ... of both."""

    NONE = 0
    ADD = 1
    MUL = 2
    MAX = 3
    MIN = 4
