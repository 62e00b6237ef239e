"""Detection of the Machine that this process runs on, which plans are made for."""

from bslite.engines.cpu.calibration import calibrated, kept
from bslite.engines.cpu.description import described
from bslite.machine import Machine


def detect(threads: int) -> Machine:
    """The machine model for ``threads`` threads of this process.

    It is the machine as described, with the rates that ``bslite calibrate`` measured, if there are any. This
    function measures nothing.
    """
    return calibrated(described(threads), kept())
