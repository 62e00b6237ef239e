"""What onnxruntime tells of itself and lets a program set for the whole process."""

from importlib.metadata import version

PROVIDERS = ("CPUExecutionProvider",)

__version__ = version("bslite")


def get_available_providers() -> list[str]:
    """The execution providers that a session may be asked for."""
    return list(PROVIDERS)


get_all_providers = get_available_providers


def get_device() -> str:
    """ "CPU", as onnxruntime's build for CPUs says."""
    return "CPU"


def get_version_string() -> str:
    """bslite's version."""
    return __version__


def disable_telemetry_events() -> None:
    """Taken for programs that call it; bslite reports nothing to anyone."""


enable_telemetry_events = disable_telemetry_events


def set_default_logger_severity(severity: int) -> None:
    """Taken for programs that call it; bslite writes no log."""


def set_default_logger_verbosity(verbosity: int) -> None:
    """Taken for programs that call it; bslite writes no log."""


def set_seed(seed: int) -> None:
    """Taken for programs that call it; no operator of bslite draws random numbers."""
