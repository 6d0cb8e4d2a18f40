"""Kernel regions: `T.Kernel`, what may be asked and annotated inside one, and frames such as `T.ws` and `T.If`.

In: grid extents, thread counts, annotations. Out: one `KernelRegion` of `ir/kernel.py` for each `with T.Kernel(...)`,
whose annotations hold what the functions here were told: prelude, cluster_dims, use_swizzle, safe_value, ...
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import TileAssertionError, TileRuntimeError, TileTypeError, TileValueError
from ..frontend.constructs import Construct, as_bound, close_frame, index_type, known_range, open_frame
from ..ir.builder import Frame, current, in_kernel
from ..ir.dialect import ATTR_WS, GLOBAL, KERNEL_CLUSTER
from ..ir.expr import as_expr, is_static, truth
from ..ir.kernel import KernelRegion
from ..ir.tvm_api import (
    AttrStmt,
    IfThenElse,
    IntImm,
    StringImm,
    Var,
    is_buffer,
    tirx,
)  # fmt: skip

DEFAULT_THREADS = 128
MOST_CLUSTER = 8  # blocks that every GPU with clusters can run together (CUDA programming guide, "Thread Block Clusters")
WARP_GROUP = 128


# ---------------------------------------------------------------- the launch
class KernelLaunchFrame(Construct):
    """One launch while its body is written. blocks, threads: index variables; num_threads: threads of a block."""

    what = "T.Kernel"

    def __init__(self, blocks: Sequence[Any], threads: tuple[int, int, int], annotations: Mapping[str, Any]) -> None:
        self.grid, self.thread_extents = tuple(blocks), threads
        self.annotations: dict[str, Any] = dict(annotations)
        self.blocks: list[Var] = []
        self.threads: list[Var] = []

    @staticmethod
    def Current() -> KernelLaunchFrame | None:
        """The launch being written, or None."""
        frame = current("T.KernelLaunchFrame.Current").kernel
        return frame.facts["launch"] if frame is not None else None

    @property
    def num_threads(self) -> int:
        x, y, z = self.thread_extents
        return x * y * z

    def enter(self) -> Any:
        builder = current(self.what)
        if builder.kernel is not None:
            raise TileRuntimeError(f"{self.what} inside another kernel", remedy="close the first kernel's `with` block before")
        self.builder, self.frame = open_frame("kernel", self.what)
        self.frame.facts["launch"] = self
        self.span = builder.span()
        names = self.names if len(self.names) == len(self.grid) else ()
        self.blocks = [
            Var(names[k] if names and names[k] != "_" else f"b{'xyzuvw'[k % 6]}", index_type([e])) for k, e in enumerate(self.grid)
        ]
        self.threads = [Var(f"t{d}", "int32") for d in "xyz"]
        for var, extent in zip((*self.blocks, *self.threads), (*self.grid, *self.thread_extents), strict=True):
            known_range(builder, var, 0, extent)
        return self.blocks[0] if len(self.blocks) == 1 and not self.unpacked else list(self.blocks)

    def leave(self) -> None:
        body = close_frame(self.builder, self.frame)
        blocks = tuple(zip(self.blocks, self.grid, strict=True))
        threads = tuple(zip(self.threads, self.thread_extents, strict=True))
        self.builder.emit(KernelRegion(blocks, threads, body, self.annotations, self.span).to_stmt())


def Kernel(
    *blocks: Any, threads: Any = None, is_cpu: bool = False, prelude: str | None = None, cluster_dims: Any = None
) -> KernelLaunchFrame:
    """Launch a grid of blocks: `with T.Kernel(gx, gy, threads=128) as (bx, by):`.

    blocks: grid extents x, y, z (ints or int32/int64 expressions, may be symbolic; 0 launches nothing; more than three on
    the CPU only). threads: threads of a block, an int or up to three ints; None = 128. is_cpu: accepted; one thread.
    prelude: source text put before the generated code. cluster_dims: blocks of a cluster along x, y, z, which divide the grid's extents;
    an int or up to three ints, (1, 1, 1) means none, 8 blocks at most. On GPUs from sm_90 on they run together, and pipelined copies that
    are the same for all of them are fetched once; elsewhere blocks run on their own.
    Value of `as`: one index, or a list of indices. Raises TileValueError for counts that are not positive.
    """
    if is_cpu and threads is not None:
        raise TileValueError("T.Kernel(is_cpu=True) has no threads", remedy="leave `threads` out")
    return _launch("T.Kernel", blocks, (1, 1, 1) if is_cpu else thread_extents(threads), prelude, cluster_dims)


def ClusterKernel(*blocks: Any, cluster_dims: Any, threads: Any = None, prelude: str | None = None) -> KernelLaunchFrame:
    """`T.Kernel` whose blocks come in clusters. cluster_dims: an int or up to three ints; (1, 1, 1) means none."""
    return _launch("T.ClusterKernel", blocks, thread_extents(threads), prelude, cluster_dims)


def _launch(what: str, blocks: Sequence[Any], threads: tuple[int, int, int], prelude: Any, cluster_dims: Any) -> KernelLaunchFrame:
    current(what)
    extents = [as_bound(b, f"{what}: grid extent {k}") for k, b in enumerate(blocks)]
    for axis, extent in enumerate(extents):
        if isinstance(extent, int) and extent < 0:
            raise TileValueError(f"{what}: grid extent {axis} is {extent}; extents are 0 or more")
    if prelude is not None and not isinstance(prelude, str):
        raise TileTypeError(f"{what}: prelude is {prelude!r}; it is source text")
    annotations: dict[str, Any] = {} if not prelude else {"prelude": prelude}
    if cluster_dims is not None and (shape := _three(cluster_dims, f"{what}: cluster_dims")) != (1, 1, 1):
        if math.prod(shape) > MOST_CLUSTER:
            raise TileValueError(f"{what}: a cluster of {math.prod(shape)} blocks; it has at most {MOST_CLUSTER}")
        for axis, (extent, size) in enumerate(zip(extents, shape, strict=False)):
            if isinstance(extent, int) and extent % size:
                remedy = "round the grid up; copies of blocks outside of the tensors read zeros and write nothing"
                raise TileValueError(
                    f"{what}: grid extent {axis} is {extent}, no multiple of the {size} blocks of a cluster", remedy=remedy
                )
        if any(size > 1 for size in shape[len(extents) :]):
            raise TileValueError(f"{what}: cluster_dims {list(shape)} of a grid with {len(extents)} dimensions")
        annotations[KERNEL_CLUSTER] = list(shape)
    frame = KernelLaunchFrame(extents, threads, annotations)
    frame.what = what
    return frame


def thread_extents(threads: Any) -> tuple[int, int, int]:
    """Threads of a block in x, y, z."""
    return _three(DEFAULT_THREADS if threads is None else threads, "threads")


def _three(value: Any, what: str) -> tuple[int, int, int]:
    parts = list(value) if isinstance(value, (list, tuple)) else [value]
    parts = [int(p) if isinstance(p, IntImm) else p for p in parts]
    if not 1 <= len(parts) <= 3 or not all(isinstance(p, int) and not isinstance(p, bool) for p in parts):
        raise TileValueError(f"{what} must be an int or up to three ints, got {value!r}")
    if any(p <= 0 for p in parts):
        raise TileValueError(
            f"{what} must be positive, got {value!r}", remedy=f"give each dimension at least 1 (default {DEFAULT_THREADS})"
        )
    x, y, z = (*parts, 1, 1)[:3]
    return x, y, z


# ---------------------------------------------------------------- queries
def _frame(what: str) -> KernelLaunchFrame:
    frame: Frame | None = in_kernel(what).kernel
    assert frame is not None
    return frame.facts["launch"]


def _pick(values: Sequence[Any], dim: Any, what: str) -> Any:
    if not isinstance(dim, int) or not 0 <= dim < len(values):
        raise TileValueError(f"{what}({dim!r}): this kernel has dimensions 0 to {len(values) - 1}")
    return values[dim]


def get_thread_binding(dim: int = 0) -> Var:
    """Index of the running thread in dimension `dim` of its block (int32)."""
    return _pick(_frame("T.get_thread_binding").threads, dim, "T.get_thread_binding")


def get_thread_bindings() -> list[Var]:
    """Thread indices x, y, z."""
    return list(_frame("T.get_thread_bindings").threads)


def get_block_binding(dim: int = 0) -> Var:
    """Index of the running block in dimension `dim` of the grid."""
    return _pick(_frame("T.get_block_binding").blocks, dim, "T.get_block_binding")


def get_block_bindings() -> list[Var]:
    """Block indices, one for each dimension of the grid."""
    return list(_frame("T.get_block_bindings").blocks)


def get_thread_extent(dim: int = 0) -> int:
    """Threads of a block in dimension `dim`."""
    return _pick(_frame("T.get_thread_extent").thread_extents, dim, "T.get_thread_extent")


def get_thread_extents() -> list[int]:
    """Threads of a block in x, y, z."""
    return list(_frame("T.get_thread_extents").thread_extents)


def get_block_extent(dim: int = 0) -> Any:
    """Blocks of the grid in dimension `dim`: an int, or an expression if symbolic."""
    return _pick(_frame("T.get_block_extent").grid, dim, "T.get_block_extent")


def get_block_extents() -> list[Any]:
    """Blocks of the grid, one extent for each dimension."""
    return list(_frame("T.get_block_extents").grid)


# ---------------------------------------------------------------- frames
class Body(Construct):
    """A frame with one body. finish: the statement made of the body."""

    def __init__(self, what: str, kind: str, conditional: bool) -> None:
        self.what, self.kind, self.conditional = what, kind, conditional

    def enter(self) -> Any:
        self.builder, self.frame = open_frame(self.kind, self.what)
        self.span = self.builder.span()
        return None

    def leave(self) -> None:
        self.finish(close_frame(self.builder, self.frame))

    def finish(self, body: Any) -> None:
        self.builder.emit(body)


class WarpSpecialize(Body):
    """The body runs in some 128-thread groups only."""

    def __init__(self, *groups: int) -> None:
        super().__init__("T.ws", "ws", True)
        flat = [g for entry in groups for g in (entry if isinstance(entry, (list, tuple)) else [entry])]
        if not flat:
            raise TileAssertionError("T.ws needs at least one thread group", remedy="write T.ws(0) or T.ws(0, 1)")
        if not all(isinstance(g, int) and g >= 0 for g in flat):
            raise TileTypeError(f"T.ws{tuple(groups)}: thread groups are numbers from 0, known while tracing")
        self.groups = sorted(set(flat))

    def enter(self) -> Any:
        launch = _frame("T.ws")
        if self.groups[-1] * WARP_GROUP >= launch.num_threads:
            raise TileValueError(
                f"T.ws group {self.groups[-1]} starts at thread {self.groups[-1] * WARP_GROUP}; a block has {launch.num_threads} threads",
                remedy="ask for more threads in T.Kernel, or use a smaller group number",
            )
        return super().enter()

    def finish(self, body: Any) -> None:
        self.builder.emit(AttrStmt(list(self.groups), ATTR_WS, IntImm("int32", 0), body, self.span))


ws = WarpSpecialize


class AttrFrame(Body):
    """A TIR attribute around a body."""

    def __init__(self, node: Any, key: str, value: Any) -> None:
        super().__init__("T.attr", "attr", False)
        if not isinstance(key, str):
            raise TileTypeError(f"T.attr: key is {key!r}; it is a string")
        self.node, self.key = as_expr(0) if node is None else node, key
        self.value = StringImm(value) if isinstance(value, str) else as_expr(value)

    def finish(self, body: Any) -> None:
        self.builder.emit(AttrStmt(self.node, self.key, self.value, body, self.span))


def attr(node: Any, key: str, value: Any) -> AttrFrame:
    """`with T.attr(node, key, value):` puts a TIR attribute around the body."""
    current("T.attr")
    return AttrFrame(node, key, value)


class If(Body):
    """`with T.If(cond):` around `with T.Then():` and `with T.Else():`, the spelling of TIR."""

    def __init__(self, condition: Any) -> None:
        super().__init__("T.If", "tir_if", True)
        self.condition = truth(condition)
        self.bodies: dict[str, Any] = {}

    def enter(self) -> Any:
        super().enter()
        self.frame.facts["if"] = self
        return None

    def finish(self, body: Any) -> None:
        if "then" not in self.bodies:
            raise TileRuntimeError("T.If without T.Then", remedy="put the statements into `with T.Then():`")
        if self.frame.stmts:
            raise TileRuntimeError("statements of T.If outside T.Then and T.Else", remedy="put them into `with T.Then():`")
        then, other = self.bodies["then"], self.bodies.get("else")
        if is_static(self.condition):
            chosen = then if self.condition else other
            if chosen is not None:
                self.builder.emit(chosen)
            return
        self.builder.emit(IfThenElse(self.condition, then, other, self.span))


class _Arm(Body):
    def __init__(self, what: str, key: str) -> None:
        super().__init__(what, "if", True)
        self.key = key

    def enter(self) -> Any:
        frame = current(self.what).frames[-1]
        if "if" not in frame.facts or self.key in frame.facts["if"].bodies:
            raise TileRuntimeError(f"{self.what} outside T.If, or twice in one", remedy="write `with T.If(cond): with T.Then(): ...`")
        self.owner = frame.facts["if"]
        return super().enter()

    def finish(self, body: Any) -> None:
        self.owner.bodies[self.key] = body


def Then() -> Construct:
    """The branch of `T.If` taken when its condition holds."""
    return _Arm("T.Then", "then")


def Else() -> Construct:
    """The other branch of `T.If`."""
    return _Arm("T.Else", "else")


class WhileFrame(Body):
    """`with T.While(cond):`, the spelling of TIR."""

    def __init__(self, condition: Any) -> None:
        super().__init__("T.While", "while", True)
        self.condition = truth(condition)
        if is_static(self.condition):
            raise TileValueError(f"T.While: the condition is always {self.condition}", remedy="test a variable")

    def finish(self, body: Any) -> None:
        self.builder.emit(tirx.While(self.condition, body, self.span))


def While(condition: Any) -> WhileFrame:
    """`with T.While(cond):` repeats the body while the condition, which must read a variable, holds."""
    current("T.While")
    return WhileFrame(condition)


def block(name: str = "") -> Construct:
    """A named group of statements; it has no effect of its own."""
    current("T.block")
    return Body(f"T.block {name}".strip(), "block", False)


sblock = block


def reads(*regions: Any) -> None:
    """What a `T.block` reads; accepted, since the compiler finds it out."""
    current("T.reads")


def writes(*regions: Any) -> None:
    """What a `T.block` writes; accepted, since the compiler finds it out."""
    current("T.writes")


# ---------------------------------------------------------------- annotations
def _annotations(what: str) -> dict[str, Any]:
    return _frame(what).annotations


def use_swizzle(panel_size: int, order: str = "row", enable: bool = True) -> None:
    """Visit blocks in panels of `panel_size` rows ("row") or columns ("column"); results do not change.

    Raises TileValueError for an order other than "row", "column", "mlx" or a panel that is not positive."""
    annotations = _annotations("T.use_swizzle")
    if order not in ("row", "column", "col", "mlx"):
        raise TileValueError(f"T.use_swizzle: order is {order!r}", remedy='use "row" or "column"')
    if not isinstance(panel_size, int) or panel_size <= 0:
        raise TileValueError(f"T.use_swizzle: panel_size is {panel_size!r}; it is a positive int")
    if enable:
        annotations["use_swizzle"] = [panel_size, "column" if order == "col" else order]


def import_source(source: str | None = None) -> None:
    """Put source text before the generated device code of this kernel; None is ignored."""
    if source is None:
        return
    annotations = _annotations("T.import_source")
    if not isinstance(source, str):
        raise TileTypeError(f"T.import_source: {source!r} is no source text")
    annotations["prelude"] = "\n".join([*([annotations["prelude"]] if "prelude" in annotations else []), source])


def _buffer_map(what: str, mapping: Any) -> dict[Var, Any]:
    if not isinstance(mapping, Mapping):
        raise TileTypeError(f"{what}: {mapping!r} is no dict of buffers")
    for buffer in mapping:
        if not (isinstance(buffer, Var) and is_buffer(buffer)):
            raise TileTypeError(f"{what}: {buffer!r} is no buffer")
    return dict(mapping)


def _extend(what: str, key: str, mapping: Mapping[Var, Any]) -> None:
    annotations = _annotations(what)
    annotations[key] = {**annotations.get(key, {}), **mapping}


def annotate_safe_value(values: Mapping[Var, Any]) -> None:
    """The value that an out-of-range load of a buffer gives, instead of 0: `T.annotate_safe_value({A: -T.infinity("float32")})`."""
    mapping = _buffer_map("T.annotate_safe_value", values)
    _extend("T.annotate_safe_value", "safe_value", {b: as_expr(v) for b, v in mapping.items()})


def annotate_padding(values: Mapping[Var, Any]) -> None:
    """The value stored into a tile when the right-hand side reads global memory out of range.

    Raises TileAssertionError for global buffers."""
    mapping = _buffer_map("T.annotate_padding", values)
    for buffer in mapping:
        if buffer.scope() == GLOBAL:
            raise TileAssertionError(f"T.annotate_padding: {buffer.name} is global", remedy="annotate the tile that is stored to")
    _extend("T.annotate_padding", "padding", {b: as_expr(v) for b, v in mapping.items()})


def annotate_l2_hit_ratio(ratios: Mapping[Var, float]) -> None:
    """How much of a global buffer should stay in the L2 cache (0 to 1); a hint."""
    mapping = _buffer_map("T.annotate_l2_hit_ratio", ratios)
    for buffer in mapping:
        if buffer.scope() != GLOBAL:
            raise TileAssertionError(f"T.annotate_l2_hit_ratio: {buffer.name} has scope {buffer.scope()}; the buffer must be global")
    _extend("T.annotate_l2_hit_ratio", "l2_hit_ratio", {b: float(r) for b, r in mapping.items()})


def annotate_min_blocks_per_sm(count: int) -> None:
    """At least `count` blocks should be resident on one multiprocessor; a hint."""
    if not isinstance(count, int) or count <= 0:
        raise TileValueError(f"T.annotate_min_blocks_per_sm: {count!r} is no positive int")
    _annotations("T.annotate_min_blocks_per_sm")["min_blocks_per_sm"] = count


def annotate_restrict_buffers(*buffers: Var) -> None:
    """These global buffers may overlap each other in memory."""
    _buffer_map("T.annotate_restrict_buffers", dict.fromkeys(buffers))
    _annotations("T.annotate_restrict_buffers")["may_alias"] = list(buffers)


def _function_attrs(what: str) -> dict[str, Any]:
    return current(what).facts.setdefault("attrs", {})


def annotate_pass_configs(configs: Mapping[str, Any]) -> None:
    """Pass configuration of this program; `tilelang.compile(pass_configs=...)` overrides it."""
    if not isinstance(configs, Mapping):
        raise TileTypeError(f"T.annotate_pass_configs: {configs!r} is no dict")
    attrs = _function_attrs("T.annotate_pass_configs")
    attrs["tl.pass_configs"] = {**attrs.get("tl.pass_configs", {}), **{str(getattr(k, "value", k)): v for k, v in configs.items()}}


def annotate_compile_flags(*flags: Any) -> None:
    """Flags for the compiler of the generated device code."""
    texts = [str(f) for entry in flags for f in (entry if isinstance(entry, (list, tuple)) else [entry])]
    attrs = _function_attrs("T.annotate_compile_flags")
    attrs["tl.compile_flags"] = [*attrs.get("tl.compile_flags", []), *texts]


def func_attr(attributes: Mapping[str, Any]) -> None:
    """Attributes of the program that is being written."""
    if not isinstance(attributes, Mapping):
        raise TileTypeError(f"T.func_attr: {attributes!r} is no dict")
    _function_attrs("T.func_attr").update(attributes)
