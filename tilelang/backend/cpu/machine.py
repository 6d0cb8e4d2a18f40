"""The host processor as the few numbers that loops are shaped by."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from ...ir.context import PassContext
from ...ir.tvm_api import tvm
from ...knobs import knobs
from ..llvm import host_cpu


@dataclass(frozen=True)
class Machine:
    """vector_bits: of one register. registers: how many vector registers there are."""

    vector_bits: int
    registers: int

    def lanes(self, dtype: str) -> int:
        """Elements of this type in one vector."""
        return self.vector_bits // max(8, int("".join(c for c in dtype if c.isdigit())))


def cpu_name(ctx: PassContext) -> str:
    """The processor to compile for: the target's `mcpu`, the knob `cpu`, or this machine's."""
    return ctx.target.option("mcpu") or knobs.cpu or host_cpu()


@functools.cache
def machine_of(cpu: str) -> Machine:
    target = tvm.target.Target({"kind": "llvm", "mcpu": cpu})
    features = {str(f) for f in tvm.get_global_func("target.llvm_get_cpu_features")(target)}
    if "avx512f" in features:
        return Machine(512, 32)
    if "avx" in features:
        return Machine(256, 16)
    return Machine(128, 32 if "neon" in features else 16)


def machine(ctx: PassContext) -> Machine:
    return machine_of(cpu_name(ctx))
