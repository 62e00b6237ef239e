"""Options of sessions and runs. Those that steer onnxruntime's inside are kept and have no effect."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from bslite.errors import InputError, UnsupportedError


class GraphOptimizationLevel(IntEnum):
    """How much onnxruntime rewrites a graph; bslite's answers and speed do not depend on it."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(IntEnum):
    """Whether onnxruntime runs operators side by side."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class ExecutionOrder(IntEnum):
    """In which order onnxruntime visits nodes."""

    DEFAULT = 0
    PRIORITY_BASED = 1
    MEMORY_EFFICIENT = 2


@dataclass(slots=True)
class SessionOptions:
    """``intra_op_num_threads`` is the number of threads, 0 for bslite's choice; free sizes may be fixed."""

    intra_op_num_threads: int = 0
    inter_op_num_threads: int = 0
    execution_mode: ExecutionMode = ExecutionMode.ORT_SEQUENTIAL
    execution_order: ExecutionOrder = ExecutionOrder.DEFAULT
    graph_optimization_level: GraphOptimizationLevel = GraphOptimizationLevel.ORT_ENABLE_ALL
    enable_cpu_mem_arena: bool = True
    enable_mem_pattern: bool = True
    enable_mem_reuse: bool = True
    enable_profiling: bool = False
    profile_file_prefix: str = ""
    optimized_model_filepath: str = ""
    log_severity_level: int = -1
    log_verbosity_level: int = 0
    logid: str = ""
    use_deterministic_compute: bool = False
    use_per_session_threads: bool = True
    entries: dict[str, str] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)  # free size -> what it is fixed to

    @property
    def threads(self) -> int | None:
        """The number of threads as `bslite.compile` takes it. InputError for a negative one."""
        if self.intra_op_num_threads < 0:
            raise InputError(f"intra_op_num_threads is {self.intra_op_num_threads}; expected 0 or more")
        return self.intra_op_num_threads or None

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Keep an entry of onnxruntime's; it has no effect."""
        self.entries[key] = value

    def get_session_config_entry(self, key: str) -> str:
        """An entry that was added. InputError if there is none."""
        if key not in self.entries:
            raise InputError(f"there is no session config entry {key!r}")
        return self.entries[key]

    def add_free_dimension_override_by_name(self, name: str, size: int) -> None:
        """Fix the free size that the model calls ``name``."""
        self.sizes[name] = size

    def add_provider(self, name: str, options: Mapping[str, str] | None = None) -> None:
        """Taken for programs that call it; sessions run on the CPU."""

    def has_providers(self) -> bool:
        """False: a session's providers are its own arguments."""
        return False

    def register_custom_ops_library(self, path: str) -> None:
        """UnsupportedError: bslite loads no compiled operators."""
        raise UnsupportedError(f"custom operators ({path}): bslite loads no compiled libraries")


@dataclass(slots=True)
class RunOptions:
    """Options of one run; none has an effect."""

    log_severity_level: int = -1
    log_verbosity_level: int = 0
    logid: str = ""
    only_execute_path_to_fetches: bool = False
    terminate: bool = False
    entries: dict[str, str] = field(default_factory=dict)

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Keep an entry of onnxruntime's; it has no effect."""
        self.entries[key] = value

    def get_run_config_entry(self, key: str) -> str:
        """An entry that was added. InputError if there is none."""
        if key not in self.entries:
            raise InputError(f"there is no run config entry {key!r}")
        return self.entries[key]
