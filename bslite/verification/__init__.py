"""An engine against the oracle in float64, layer by layer and as a whole."""

from bslite.verification.checks import FACTOR, TINY, Check, check, relative_error
from bslite.verification.engine import CPU, Engine, engine_for
from bslite.verification.layers import check_layers, outputs_pass
from bslite.verification.models import verify
from bslite.verification.result import Verification

__all__ = [
    "CPU",
    "FACTOR",
    "TINY",
    "Check",
    "Engine",
    "Verification",
    "check",
    "check_layers",
    "engine_for",
    "outputs_pass",
    "relative_error",
    "verify",
]
