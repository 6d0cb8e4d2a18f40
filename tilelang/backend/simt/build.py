"""From the final THREADS program to a Python function over NumPy arrays, and its artifact.

In: the program after the pipeline's last stage. Out: an `Artifact` whose entry takes the arguments in parameter order; its
source is the generated Python.
"""

from __future__ import annotations

import ctypes
import functools
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from ...errors import TileNotSupportedError, TileTypeError, TileValueError
from ...ir.access import view_roots
from ...ir.context import PassContext
from ...ir.dialect import ANNOTATION_ALLOC, KERNEL_CLUSTER, SHARED_SCOPES, op_name
from ...ir.dtype_table import info, numpy_type
from ...ir.kernel import KernelRegion, match_kernel
from ...ir.rewrite import substitute, walk
from ...ir.tvm_api import (
    AllocBuffer,
    Analyzer,
    AttrStmt,
    Call,
    DeclBuffer,
    PrimFunc,
    Stmt,
    Var,
    const,
    dtype_of,
    ffi,
    is_buffer,
    linear_coefficients,
    location_of_span,
    shape_of,
    static_shape,
)  # fmt: skip
from ...knobs import knobs
from ...passes.pipeline.tma_boxes import KEY_OFF, STRIDE_BYTES, boxed_tensors
from ..base import Artifact
from . import scope as sc
from .bulk_copies import Box
from .counters import Counters
from .effects import is_barrier
from .machine import KernelSpec, Machine, SharedSpec
from .memory import Global
from .products import Source
from .report import Site
from .scope import Scope, Value
from .statements import Statements

SEED = "tl.simt_seed"  # pass configuration: seed of the orders that a GPU leaves open (default: the knob `simt_seed`)
COUNTERS = "tl.simt_counters"  # pass configuration: count bank conflicts and sectors (`artifact.entry.counters`)
ALIGNMENT = 16  # of shared buffers that no plan has placed


def build(func: PrimFunc, ctx: PassContext) -> Artifact:
    """Generate and load the Python function."""
    start = time.perf_counter()
    program = _Program(func)
    source = program.text()
    name = str(func.attrs["global_symbol"]) if func.attrs and "global_symbol" in func.attrs else "main"
    namespace = program.scope.namespace
    exec(compile(source, f"<emulated {name}>", "exec"), namespace)
    run = namespace[program.entry]
    seed = ctx.config.get(SEED)
    entry = Entry(run, list(func.params), list(program.symbols), None if seed is None else int(seed), ctx.flag(COUNTERS))
    entry.boxed, entry.again = boxed_tensors(func.body), ctx.again
    return Artifact(entry=entry, source=source, notes=tuple(ctx.notes), seconds={"emulator": time.perf_counter() - start})


class Entry:
    """The callable of an artifact. counters: totals of all calls so far, or None if they were not asked for. boxed: tensors that bulk
    copies move; where an argument is none that they can move, the program is lowered `again`, without them."""

    def __init__(self, run: Callable[..., None], params: list[Var], symbols: list[Var], seed: int | None, count: bool) -> None:
        self.run, self.params, self.symbols, self.seed = run, params, symbols, seed
        self.counters = Counters() if count else None
        self.boxed: Collection[Var] = ()
        self.again: Callable[[Mapping[str, Any]], tuple[PrimFunc, PassContext]] | None = None

    @functools.cached_property
    def plain(self) -> Callable[..., None]:
        """The program without bulk copies."""
        assert self.again is not None
        return build(*self.again({KEY_OFF: True})).entry

    def __call__(self, *args: Any) -> None:
        if self.boxed and any(p in self.boxed and not _can_be_boxed(as_numpy(a)) for p, a in zip(self.params, args, strict=True)):
            self.plain(*args)
            return
        seed = knobs.simt_seed if self.seed is None else self.seed
        self.run(Machine(seed, self.counters), *_arguments(self.params, args, self.symbols))


def _can_be_boxed(array: np.ndarray) -> bool:
    """Can bulk copies move parts of this tensor?"""
    steps = array.ctypes.data, array.shape[-1] * array.itemsize, *array.strides[:-1]
    return array.size > 0 and not any(step < 1 or step % STRIDE_BYTES for step in steps)


def load(folder: Any, ctx: PassContext) -> Artifact:
    """Emulated programs are not kept on disk."""
    raise TileNotSupportedError("an emulated program on disk", remedy="compile it again")


def version(ctx: PassContext) -> str:
    return f"simt-1 numpy-{np.__version__}"


class _Program(Statements):
    """The whole function: host statements, and a nested function for each kernel region."""

    def __init__(self, func: PrimFunc) -> None:
        super().__init__(Scope(), view_roots(func.body))
        self.func = func
        self.entry = self.scope.fresh("program")
        self.checks: list[tuple[str, Any]] = []
        for name in ("H", "g", "shared", "always", "grid", "Box", "Source"):
            self.scope.taken.add(name)
        self.scope.namespace |= {"always": lambda: True, "Box": Box, "Source": Source}

    def text(self) -> str:
        scope = self.scope
        names = []
        for param in self.func.params:
            name = scope.fresh(param.name)
            names.append(name)
            if not is_buffer(param):
                dtype = _scalar_type(param)
                known = (int(info(dtype).low), int(info(dtype).high)) if info(dtype).is_integer else (None, None)
                scope.names[param] = Value(name, dtype, True, *known)
        scope.emit(f"def {self.entry}(H, {', '.join([*names, *self._symbols()])}):")
        scope.depth += 1
        scope.emit("g = H.host")
        for param, name in zip(self.func.params, names, strict=True):
            if is_buffer(param):
                self.declare(param, name, sc.GLOBAL)
        self(self.func.body)
        scope.depth -= 1
        return scope.text()

    def _symbols(self) -> list[str]:
        """Symbolic extents and strides, in the order of their first appearance; `self.symbols` names where each comes from."""
        self.symbols: dict[Var, str] = {}
        for param in self.func.params:
            if is_buffer(param):
                for extent in (*param.ty.shape, *param.ty.strides):
                    walk(extent, {Var: self._symbol})
        return list(self.symbols.values())

    def _symbol(self, symbol: Var) -> None:
        if symbol not in self.symbols and symbol not in self.scope.names:
            name = self.symbols[symbol] = self.scope.fresh(symbol.name)
            self.scope.names[symbol] = Value(name, dtype_of(symbol), True, 0, int(info(dtype_of(symbol)).high))

    def _attr(self, stmt: AttrStmt) -> None:
        kernel = match_kernel(stmt) if self.on_host else None
        if kernel is None:
            super()._attr(stmt)
            return
        self._kernel(kernel)

    def _kernel(self, kernel: KernelRegion) -> None:
        scope = self.scope
        name, spec_name = scope.fresh("kernel"), scope.fresh("spec")
        grid = [e if isinstance(e, int) else self.expressions(e, "None") for _, e in kernel.blocks]
        texts = [str(e) if isinstance(e, int) else e.text for e in grid]
        by_warp = calls(kernel.body, *_BY_WARP) or _named_barriers(kernel.body)
        scope.namespace[spec_name] = self._spec(kernel, by_warp)
        blocks = [scope.fresh(var.name) for var, _ in kernel.blocks]
        arguments = blocks or [scope.fresh("block")]
        scope.emit(f"grid = [{', '.join(texts)}]")
        scope.emit(f"def {name}(g, shared, {', '.join(arguments)}, grid=grid):")
        for (var, extent), text in zip(kernel.blocks, blocks, strict=True):
            scope.names[var] = Value(text, dtype_of(var), by_warp, 0, extent - 1 if isinstance(extent, int) else 2**31 - 1)
        scope.depth += 1
        mask = scope.temp("m")
        scope.emit(f"{mask} = g.mask")
        scope.emit("if False: yield None")
        for (var, extent), axis in zip(kernel.threads, ("g.tx", "g.ty", "g.tz"), strict=True):
            scope.names[var] = Value(axis, dtype_of(var), False) if extent > 1 else Value("0", dtype_of(var), True, 0, 0)
        self.effects.blocks, self.effects.threads = blocks, [var for var, _ in kernel.threads]
        self.on_host, self.by_warp, self.masks = False, by_warp, [mask]
        self.effects.by_warp = by_warp
        self.effects.bulk_loads, self.effects.products = (calls(kernel.body, name) for name in ("tl.tma_load", "tl.wgmma"))
        self.guarded = self._operands_of_products(kernel.body)
        self(kernel.body)
        self.on_host, self.masks = True, ["None"]
        scope.depth -= 1
        scope.emit(f"H.launch({spec_name}, {name}, grid)")

    def _operands_of_products(self, body: Stmt) -> set[Var]:
        """Registers that warpgroup products read or write while the program goes on."""
        found: set[Var] = set()

        def see(call: Call) -> None:
            if op_name(call) == "tl.wgmma":
                found.update(self.roots.get(r.source, r.source) for r in call.args[:3])

        walk(body, {Call: see})
        return {buffer for buffer in found if buffer.scope() not in SHARED_SCOPES}

    def _spec(self, kernel: KernelRegion, by_warp: bool) -> KernelSpec:
        """Shared buffers at the offsets of the plan, or one after the other."""
        pieces: dict[Any, int] = {}

        def see_view(stmt: DeclBuffer) -> None:
            root = self.roots.get(stmt.buffer, stmt.buffer)
            pieces[root] = min(pieces.get(root, 64), _bytes(stmt.buffer))

        walk(kernel.body, {DeclBuffer: see_view})
        shared: list[SharedSpec] = []
        barriers: list[tuple[str, tuple[int, ...]]] = []
        taken: set[str] = set()
        allocated: list[AllocBuffer] = []
        walk(kernel.body, {AllocBuffer: allocated.append})
        end = max((int(f["offset"]) + int(f["bytes"]) for f in map(_facts, allocated) if "offset" in f and "bytes" in f), default=0)
        end = -(-end // ALIGNMENT) * ALIGNMENT
        for stmt in allocated:
            buffer = stmt.buffer
            facts = _facts(stmt)
            if is_barrier(buffer):
                barriers.append((buffer.name, tuple(int(c) for c in facts.get("arrive_counts", [1]))))
            if buffer.scope() not in SHARED_SCOPES:
                continue
            if "bytes" in facts and info(dtype_of(buffer)).bits < 8:
                del facts["offset"]  # the plan packs what NumPy keeps one to a byte
            if facts.get("scratch"):
                self.scratch.add(buffer)
            elements = math.prod(static_shape(buffer)) * info(dtype_of(buffer)).lanes
            offset = int(facts["offset"]) if "offset" in facts else end
            name = buffer.name
            while name in taken:
                name = self.scope.fresh(buffer.name)
            taken.add(name)
            self.shared[buffer] = name
            kind = np.dtype(numpy_type(info(dtype_of(buffer)).base))
            spec = SharedSpec(name, kind, elements, offset, min(pieces.get(buffer, 64), kind.itemsize))
            shared.append(spec)
            end = max(end, -(-(offset + spec.bytes) // ALIGNMENT) * ALIGNMENT)
        (_, x), (_, y), (_, z) = kernel.threads
        whole_grid = calls(kernel.body, "tl.sync_grid")
        site = Site(location_of_span(kernel.span), "kernel")
        cluster = tuple(int(c) for c in kernel.annotations.get(KERNEL_CLUSTER, (1, 1, 1)))
        return KernelSpec((x, y, z), tuple(shared), tuple(barriers), by_warp, whole_grid, site, cluster)


def _bytes(buffer: Var) -> int:
    return np.dtype(numpy_type(info(dtype_of(buffer)).base)).itemsize


def _facts(stmt: AllocBuffer) -> dict[str, Any]:
    annotations = dict(stmt.annotations.items()) if stmt.annotations else {}
    return dict(annotations.get(ANNOTATION_ALLOC, {}).items()) if ANNOTATION_ALLOC in annotations else {}


# Operations by which warps wait for each other in other ways than at barriers of the whole block, or that engines execute.
_BY_WARP = (
    "tl.mbarrier_init", "tl.mbarrier_wait", "tl.mbarrier_arrive", "tl.mbarrier_expect_tx", "tl.tma_load", "tl.tma_store", "tl.wgmma",
    "tl.cluster_arrive", "tl.cluster_wait",
)  # fmt: skip


def _named_barriers(body: Stmt) -> bool:
    """Are there barriers for a part of the block?"""
    found: list[Call] = []
    walk(body, {Call: lambda c: found.append(c) if op_name(c) == "tl.sync_threads" and len(c.args) > 0 else None})
    return bool(found)


def calls(body: Stmt, *names: str) -> bool:
    """Is one of these operators called?"""
    found: list[Call] = []
    walk(body, {Call: lambda c: found.append(c) if op_name(c) in names else None})
    return bool(found)


# ---------------------------------------------------------------- arguments
def _arguments(params: Sequence[Var], args: Sequence[Any], wanted: Sequence[Var]) -> list[Any]:
    """Memory objects and numbers for the generated function; refuses what does not fit (the caller says why in detail)."""
    values: list[Any] = []
    symbols: dict[Var, int] = {}
    for param, value in zip(params, args, strict=True):
        if not is_buffer(param):
            values.append(_number(param, value))
            continue
        array = as_numpy(value)
        if info(dtype_of(param)).bits < 8 and array.itemsize == 1:  # a byte for each element
            array = array.view(numpy_type(dtype_of(param)))
        if array.dtype != np.dtype(numpy_type(info(dtype_of(param)).base)) or array.ndim != len(param.ty.shape):
            raise TileTypeError(f"{param.name}: an array of {array.dtype} with {array.ndim} dimensions does not fit")
        strides = [s // array.itemsize for s in array.strides]
        for part, actual in [*zip(shape_of(param), array.shape, strict=True), *zip(param.ty.strides, strides, strict=False)]:
            if isinstance(part, Var):
                symbols.setdefault(part, actual)
            elif isinstance(part, int) and part != actual:
                raise TileValueError(f"{param.name}: extent {actual} where {part} is expected")
            elif not isinstance(part, int):
                solve(part, actual, symbols)
        values.append(_window(param.name, array, bool(len(param.ty.strides))))
    return values + [symbols[s] for s in wanted]


def solve(extent: Any, actual: int, symbols: dict[Var, int]) -> None:
    """The value of the only unknown symbol of a linear extent, such as n in 2 * n + 1."""
    variables: list[Var] = []
    walk(extent, {Var: variables.append})
    unknown = [v for v in dict.fromkeys(variables) if v not in symbols]
    if len(unknown) != 1:
        return
    known = {v: const(symbols[v], dtype_of(v)) for v in variables if v in symbols}
    linear = linear_coefficients(substitute(extent, known), unknown)
    if linear is not None and linear[0][0]:
        symbols[unknown[0]] = (actual - int(Analyzer().simplify(linear[1]))) // linear[0][0]


def _window(name: str, array: np.ndarray, strided: bool) -> Global:
    """The flat window that a tensor's indices count in."""
    if not strided:
        return Global(name, array.reshape(-1))
    if any(s < 0 for s in array.strides):
        raise TileNotSupportedError(f"{name}: negative strides in the emulator", remedy="pass a copy")
    size = 1 + sum((e - 1) * s for e, s in zip(array.shape, (s // array.itemsize for s in array.strides), strict=True)) if array.size else 0
    return Global(name, np.lib.stride_tricks.as_strided(array, (size,), (array.itemsize,)))


def _scalar_type(param: Var) -> str:
    """Element type of a scalar parameter; a raw pointer has none of its own."""
    return str(param.ty.dtype) if hasattr(param.ty, "dtype") else "handle"


def _number(param: Var, value: Any) -> Any:
    if isinstance(value, ctypes.c_void_p):
        return value.value
    facts = info(_scalar_type(param))
    if facts.kind == "float":
        return np.dtype(numpy_type(facts.base)).type(value)
    if facts.kind == "bool":
        return bool(value)
    return int(value) % (1 << 64) if facts.kind == "uint" and value < 0 else int(value)


def as_numpy(value: Any) -> np.ndarray:
    """The memory of an argument as an array of its own element type, without a copy."""
    if isinstance(value, np.ndarray):
        return value
    tensor = ffi.from_dlpack(value)
    shape = tuple(int(e) for e in tensor.shape)
    kind = np.dtype(numpy_type(str(tensor.dtype)))
    strides = tuple(int(s) * kind.itemsize for s in tensor.strides)
    if 0 in shape:
        return np.empty(shape, kind)
    steps = [(e - 1) * s for e, s in zip(shape, strides, strict=True)]
    before, after = sum(s for s in steps if s < 0), sum(s for s in steps if s > 0)
    memory = (ctypes.c_uint8 * (after - before + kind.itemsize)).from_address(tensor.data_ptr() + before)
    return np.ndarray(shape, kind, np.ctypeslib.as_array(memory), -before, strides)
