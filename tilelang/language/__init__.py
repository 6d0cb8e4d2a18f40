"""The tile language: `import tilelang.language as T`."""

# ---- programs, kernels, loops (front end)
from ..frontend.eager import const, empty
from ..frontend.macro import Ref, macro
from ..frontend.prim_func import prim_func
from .kernel import (
    ClusterKernel, Else, If, Kernel, KernelLaunchFrame, Then, WarpSpecialize, While, annotate_compile_flags, annotate_l2_hit_ratio,
    annotate_min_blocks_per_sm, annotate_padding, annotate_pass_configs, annotate_restrict_buffers, annotate_safe_value, attr, block,
    evaluate, func_attr, get_block_binding, get_block_bindings, get_block_extent, get_block_extents, get_thread_binding,
    get_thread_bindings, get_thread_extent, get_thread_extents, import_source, sblock, use_swizzle, ws,
)  # fmt: skip
from .layout import Fragment, Layout, annotate_layout
from .loops import (
    Parallel, Persistent, Pipelined, Serial, grid, loop_break, parallel, serial, thread_binding, unroll, vectorized,
)  # fmt: skip

__all__ = [
    "ClusterKernel", "Else", "Fragment", "If", "Kernel", "KernelLaunchFrame", "Layout", "Parallel", "Persistent", "Pipelined",
    "Ref", "Serial", "Then",
    "WarpSpecialize", "While", "annotate_compile_flags", "annotate_l2_hit_ratio", "annotate_layout", "annotate_min_blocks_per_sm",
    "annotate_padding",
    "annotate_pass_configs", "annotate_restrict_buffers", "annotate_safe_value", "attr", "block", "const", "empty", "evaluate",
    "func_attr", "get_block_binding", "get_block_bindings", "get_block_extent", "get_block_extents", "get_thread_binding",
    "get_thread_bindings", "get_thread_extent", "get_thread_extents", "grid", "import_source", "loop_break", "macro", "parallel",
    "prim_func", "sblock", "serial", "thread_binding", "unroll", "use_swizzle", "vectorized", "ws",
]  # fmt: skip
