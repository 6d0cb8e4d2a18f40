"""The record of the CPU backend."""

from __future__ import annotations

from ...ir.verify import LOOPS
from ...passes.block.block_threads import block_threads
from ...passes.program.solve_symbols import solve_symbols
from ..base import Backend
from .build import build, load, version
from .effects import lower_effects
from .gemm import GEMM
from .grid import spread_grid
from .offsets import widen_offsets
from .prepare import prepare_threads
from .reduce import REDUCE
from .scalars import legalize_scalars

BACKEND = Backend(
    kind="cpu",
    last_level=LOOPS,
    build=build,
    load=load,
    version=version,
    lowerings=(GEMM, REDUCE),
    slots={
        "loops": (
            ("prepare_threads", prepare_threads),
            ("block_threads", block_threads),
        ),
        "last": (
            ("lower_effects", lower_effects),
            ("solve_symbols", solve_symbols),
            ("legalize_scalars", legalize_scalars),
            ("spread_grid", spread_grid),
            ("widen_offsets", widen_offsets),
        ),
    },
)
