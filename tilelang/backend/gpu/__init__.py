"""What the backends of GPU programs share: stages in the pipeline's slots, lowerings of tile operators.

`cuda` prints and compiles the final program, `simt` interprets it: the same program.
"""

from __future__ import annotations

from ...passes.infer_layouts import infer_layouts
from ...passes.pad_shared import pad_shared
from ...passes.plan_pipeline import plan_pipeline
from ...tileop.base import Lowering
from .async_copy import ASYNC_COPY, COPY_AND_EMPTY_GROUP
from .gemm import MMA
from .reduce import REDUCE

SLOTS = {"tiles": (("plan_pipeline", plan_pipeline), ("infer_layouts", infer_layouts), ("pad_shared", pad_shared))}
LOWERINGS: tuple[Lowering, ...] = (ASYNC_COPY, COPY_AND_EMPTY_GROUP, MMA, REDUCE)
