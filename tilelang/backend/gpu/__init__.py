"""What the backends of GPU programs share: stages in the pipeline's slots, lowerings of tile operators.

`cuda` prints and compiles the final program, `simt` interprets it: the same program.
"""

from __future__ import annotations

from ...passes.layouts.choose_shared_layouts import choose_shared_layouts
from ...passes.layouts.infer_layouts import infer_layouts
from ...passes.partition.spread_reducers import spread_reducers
from ...passes.pipeline.fold_clears import fold_clears
from ...passes.pipeline.issuing_threads import issuing_threads
from ...passes.pipeline.plan_pipeline import plan_pipeline
from ...passes.pipeline.stage_results import stage_results
from ...passes.roles.register_budgets import register_budgets
from ...passes.roles.specialize_warps import specialize_warps
from ...tileop.base import Lowering
from .async_copy import ASYNC_COPY, COPY_AND_EMPTY_GROUP
from .gemm import MMA
from .reduce import REDUCE
from .scan import SCAN
from .split_products import split_products
from .staged_store import STAGED_STORE
from .stmatrix import STMATRIX
from .tma import TMA_LOAD, TMA_REDUCE, TMA_STORE
from .warpgroup_gemm import WGMMA

SLOTS = {
    "tiles": (
        ("fold_clears", fold_clears),
        ("split_products", split_products),
        ("issuing_threads", issuing_threads),
        ("register_budgets", register_budgets),
        ("specialize_warps", specialize_warps),
        ("plan_pipeline", plan_pipeline),
        ("spread_reducers", spread_reducers),
        ("stage_results", stage_results),
        ("choose_shared_layouts", choose_shared_layouts),
        ("infer_layouts", infer_layouts),
    )
}
LOWERINGS: tuple[Lowering, ...] = (
    TMA_LOAD, TMA_STORE, TMA_REDUCE, STAGED_STORE, STMATRIX, ASYNC_COPY, COPY_AND_EMPTY_GROUP, WGMMA, MMA, REDUCE, SCAN,
)  # fmt: skip
