"""What other programs take of the cores while something is measured."""

import os
import time


def others() -> float:
    """Seconds of cores that other processes, and the host of a virtual machine, have taken so far; 0 where
    the system does not say.
    """
    try:
        with open("/proc/stat") as lines:
            user, nice, system, _, _, irq, softirq, steal, *_ = map(int, lines.readline().split()[1:])
    except (OSError, ValueError):
        return 0.0
    ticks = os.sysconf("SC_CLK_TCK")
    return (user + nice + system + irq + softirq + steal) / ticks - time.process_time()
