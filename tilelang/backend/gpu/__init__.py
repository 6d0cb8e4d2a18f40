"""What the backends of GPU programs share: stages in the pipeline's slots, lowerings of tile operators.

`cuda` prints and compiles the final program, `simt` interprets it: the same program.
"""

from __future__ import annotations

from ...passes.infer_layouts import infer_layouts
from ...tileop.base import Lowering
from .gemm import MMA

SLOTS = {"tiles": (("infer_layouts", infer_layouts),)}
LOWERINGS: tuple[Lowering, ...] = (MMA,)
