"""The worker threads of a kernel: how many, set before TVM starts its pool.

TVM's pool reads `TVM_NUM_THREADS` once, when the first parallel loop runs in the process; its own default is half of
the cores. We set the variable at the first compilation if the user has not (knob `num_threads`; 0 = every core this
process may run on). Importing the package changes nothing.
"""

from __future__ import annotations

import os

from ...knobs import knobs


def num_threads() -> int:
    """Workers a parallel loop uses."""
    return knobs.num_threads or available_cores()


def available_cores() -> int:
    """Cores this process may run on."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def start_threads() -> None:
    """Make TVM's pool, which starts with the first parallel loop of the process, use `num_threads()` workers."""
    if not os.environ.get("TVM_NUM_THREADS"):
        os.environ["TVM_NUM_THREADS"] = str(num_threads())
