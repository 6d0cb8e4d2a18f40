"""Block barriers where the accesses of different threads to shared memory require one."""

from __future__ import annotations

from ..ir.context import PassContext
from ..ir.tvm_api import PrimFunc


def insert_barriers(func: PrimFunc, ctx: PassContext) -> PrimFunc:
    """See the module."""
    return func
