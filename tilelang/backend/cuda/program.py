"""From the final program to CUDA source and a host function.

In: a `PrimFunc` at THREADS level. Out: a `CudaProgram`: the text of all its kernels, what each needs to be launched, and the text of the
host function that checks arguments and launches them (`host.py`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ...errors import TileNotSupportedError, TileValueError
from ...ir.access import accesses, view_roots
from ...ir.context import PassContext
from ...ir.dialect import BARRIER, CLUSTER_BARRIER, GLOBAL, KERNEL_CLUSTER, SHARED_SCOPES
from ...ir.kernel import KernelRegion
from ...ir.rewrite import walk
from ...ir.tvm_api import AllocBuffer, Bind, DeclBuffer, For, PrimFunc, TensorLoad, TensorRegion, Var, dtype_of, is_buffer, tirx
from ...passes.analysis.facts import sizes_of
from ...target.limits import SHARED_ALIGNMENT
from .bulk import MAP_TYPE, TensorMap
from .cpp_types import bytes_of, c_type
from .expressions import Expressions
from .memory import Place, element_count
from .names import Names
from .operators import Operators
from .statements import Statements

SHARED_KINDS = (*SHARED_SCOPES, BARRIER, CLUSTER_BARRIER)


@dataclass(frozen=True)
class KernelFacts:
    """One kernel. name: its symbol. block: threads in x, y, z. shared: bytes of dynamic shared memory. cooperative: all its blocks must
    be resident together. parameters: C++ type of each parameter. dependent: it waits for the kernels before it by itself, so that it may
    be launched while they run."""

    name: str
    block: tuple[int, int, int]
    shared: int
    cooperative: bool
    parameters: tuple[str, ...]
    dependent: bool = False


@dataclass
class CudaProgram:
    """text: CUDA source whose vector accesses assume 16-byte aligned tensors that do not overlap; careful: the same without that
    assumption. host: text of the host function. kernels: in the order of the text. takes_tensors: does the program have tensors?"""

    name: str
    text: str
    careful: str
    host: str
    kernels: list[KernelFacts] = field(default_factory=list)
    flags: list[str] = field(default_factory=list)
    takes_tensors: bool = True

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> CudaProgram:
        kernels = [
            KernelFacts(k["name"], tuple(k["block"]), k["shared"], k["cooperative"], tuple(k["parameters"]), k["dependent"])
            for k in data["kernels"]
        ]
        return cls(data["name"], data["text"], data["careful"], data["host"], kernels, list(data["flags"]), data["takes_tensors"])


@dataclass(frozen=True)
class KernelText:
    """A printed kernel: its text, what it includes, functions that stand before it, its facts, the variables that it takes, in order, and
    the tensor maps that it takes after them."""

    text: str
    needs: frozenset[str]
    definitions: Mapping[str, str]
    facts: KernelFacts
    arguments: tuple[Var, ...]
    maps: tuple[TensorMap, ...]
    prelude: str


def free_variables(kernel: KernelRegion) -> list[Var]:
    """Variables and buffers that the kernel uses and the host defines, in the order of their first use."""
    own: set[Var] = {v for v, _ in (*kernel.blocks, *kernel.threads)}
    used: dict[Var, None] = {}
    noted: set[int] = set()  # addresses: a variable as a key is compared by way of TVM
    buffers: set[int] = set()

    def note(var: Var) -> None:
        if var.__chandle__() not in noted:
            noted.add(var.__chandle__())
            used.setdefault(var)

    def note_buffer(buffer: Var) -> None:
        if buffer.__chandle__() in buffers:
            return
        buffers.add(buffer.__chandle__())
        note(buffer)
        for extent in (*buffer.ty.shape, *buffer.ty.strides):
            walk(extent, {Var: note})

    walk(kernel.body, {AllocBuffer: lambda s: own.add(s.buffer), DeclBuffer: lambda s: own.add(s.buffer), Bind: lambda s: own.add(s.var),
                       For: lambda s: own.add(s.loop_var), tirx.Let: lambda e: own.add(e.var),
                       tirx.CommReducer: lambda r: own.update([*r.lhs, *r.rhs])})  # fmt: skip
    walk(kernel.body, {TensorLoad: lambda e: note_buffer(e.source), TensorRegion: lambda e: note_buffer(e.source),
                       tirx.BufferStore: lambda s: note_buffer(s.buffer), Var: note})  # fmt: skip
    walk(kernel.body, {Var: lambda v: note_buffer(v) if is_buffer(v) else note(v)})
    return [v for v in used if v not in own]


def shared_plan(kernel: KernelRegion) -> tuple[dict[Var, int], int]:
    """Byte offset of each shared buffer, and the bytes of all: as `plan_shared` decided, one after the other where it did not."""
    offsets: dict[Var, int] = {}
    end = 0
    unplanned: list[Var] = []

    def note(stmt: AllocBuffer) -> None:
        nonlocal end
        if stmt.buffer.scope() not in SHARED_KINDS:
            return
        facts = dict(dict(stmt.annotations or {}).get("tl.alloc", {}))
        if "offset" not in facts:
            unplanned.append(stmt.buffer)
            return
        offsets[stmt.buffer] = int(facts["offset"])
        end = max(end, int(facts["offset"]) + int(facts.get("bytes", _bytes(stmt.buffer))))

    walk(kernel.body, {AllocBuffer: note})
    for buffer in unplanned:
        start = -(-end // 128) * 128
        offsets[buffer] = start
        end = start + _bytes(buffer)
    return offsets, end


def _bytes(buffer: Var) -> int:
    return (element_count(buffer) or 0) * bytes_of(dtype_of(buffer))


def print_kernel(
    func: PrimFunc, kernel: KernelRegion, name: str, aligned: bool, order: Mapping[Var, int], dependent: bool = False
) -> KernelText:  # fmt: skip
    """One kernel. order: position of each host variable, by which parameters are sorted. dependent: it may be launched while the kernel
    before it runs (programmatic dependent launch, sm_90 and later)."""
    if len(kernel.blocks) > 3:
        raise TileNotSupportedError(f"a grid of {len(kernel.blocks)} dimensions on a CUDA device", remedy="use up to 3")
    if kernel.num_threads > 1024:
        raise TileValueError(f"{kernel.num_threads} threads in a block; a CUDA device has at most 1024")
    names = Names()
    e = Expressions(names, sizes_of(func))
    e.data.update(v for v in func.params if not is_buffer(v))
    o = Operators(e, aligned)
    shared, size = shared_plan(kernel)
    free = sorted(free_variables(kernel), key=lambda v: order.get(v, len(order)))
    declared = _parameters(func, kernel, free, e, aligned)
    for var, extent in (*kernel.blocks, *kernel.threads):
        names.of(var)
        e.facts.bind_range(var, 0, extent)
    printer = Statements(e, o, kernel, shared)
    printer.dependent = dependent
    names.of(printer.warpgroup)
    printer.statement(kernel.body)
    body = "\n".join(printer.lines)
    code = re.sub(r'"(\\.|[^"\\])*"|//.*', "", body)  # without strings and comments
    arguments = tuple(v for v in free if _mentions(code, names.of(v)))
    parameters = [declared[v] for v in arguments]
    maps = printer.bulk.maps
    parameters += [f"const __grid_constant__ {MAP_TYPE} {m.name}" for m in maps]
    if o.uses_grid_barrier:
        parameters.append("uint32_t* grid_barrier")
    first = list(printer.prologue)
    head = [*_head(kernel, names, "\n".join([code, *first]), size, o), *first, *printer.bulk.prologue()]
    count = kernel.annotations.get("min_blocks_per_sm")
    bounds = f"{kernel.num_threads}{f', {int(count)}' if count is not None else ''}"
    cluster = kernel.annotations.get(KERNEL_CLUSTER)
    dims = "" if cluster is None else f"__cluster_dims__({', '.join(str(int(c)) for c in cluster)}) "
    lines = [f'extern "C" __global__ void {dims}__launch_bounds__({bounds}) {name}({", ".join(parameters)}) {{', *head, body, "}"]
    block = tuple(extent for _, extent in kernel.threads)
    types = tuple(re.sub(r" ?(__restrict__ )?\w+$", "", p).removeprefix("const __grid_constant__ ") for p in parameters)
    facts = KernelFacts(name, (block[0], block[1], block[2]), size, o.uses_grid_barrier, types, dependent and not o.uses_grid_barrier)
    needs = o.needs | ({"grid.cuh"} if "visit_in_panels" in "".join(head) else set())
    prelude = str(kernel.annotations.get("prelude", ""))
    return KernelText("\n".join(lines), frozenset(needs), dict(o.definitions), facts, arguments, maps, prelude)


def written_buffers(kernel: KernelRegion, roots: Mapping[Var, Var]) -> set[Var]:
    """Buffers that the kernel may write, under every name."""
    writes = [a for a in accesses(kernel.body, roots) if a.writes]
    return {a.root for a in writes} | {a.buffer for a in writes}


def _mentions(text: str, name: str) -> bool:
    return re.search(rf"\b{re.escape(name)}\b", text) is not None


def _parameters(func: PrimFunc, kernel: KernelRegion, free: list[Var], e: Expressions, aligned: bool) -> dict[Var, str]:
    """The C++ parameter of each variable that the host gives; notes the places of the buffers among them."""
    roots = view_roots(func.body)
    written = written_buffers(kernel, roots)
    views = set(roots)
    may_alias = set(kernel.annotations.get("may_alias", ()))
    texts: dict[Var, str] = {}
    for var in free:
        name = e.names.of(var)
        if not is_buffer(var):
            texts[var] = f"{c_type(_scalar_type(var))} {name}"
            continue
        dtype = dtype_of(var)
        # Two names of the same memory, or a promise of the user: the compiler may not reorder around them.
        restrict = "__restrict__ " if aligned and var not in views and var not in may_alias and var not in roots.values() else ""
        constant = "" if var in written else "const "
        texts[var] = f"{constant}{c_type(dtype)}* {restrict}{name}"
        e.places[var] = Place(name, dtype, GLOBAL, aligned=aligned and (var not in views))
    return texts


def _scalar_type(var: Var) -> str:
    dtype = getattr(var.ty, "dtype", None)
    return "handle" if dtype is None else str(dtype)


def _head(kernel: KernelRegion, names: Names, code: str, size: int, o: Operators) -> list[str]:
    """The declarations before the body: shared memory, positions of block and thread, the random generator."""
    lines = [f"  extern __shared__ __align__({SHARED_ALIGNMENT}) uint8_t smem[];"] if size else []
    clustered = KERNEL_CLUSTER in kernel.annotations  # panels would tear the blocks of a cluster apart
    swizzle = None if clustered else kernel.annotations.get("use_swizzle")
    used = lambda var: _mentions(code, names.of(var))  # noqa: E731
    if swizzle is not None and len(kernel.blocks) >= 2 and any(used(v) for v, _ in kernel.blocks[:2]):
        x, y = (names.of(v) for v, _ in kernel.blocks[:2])
        wide, high, column, row = ("gridDim.x", "gridDim.y", x, y) if str(swizzle[1]) != "column" else ("gridDim.y", "gridDim.x", y, x)
        lines.append(f"  int {x}, {y};")
        lines.append(f"  tl::visit_in_panels(blockIdx.x + gridDim.x * blockIdx.y, {int(swizzle[0])}, {wide}, {high}, {column}, {row});")
        positions = [(v, f"blockIdx.{'xyz'[k]}") for k, (v, _) in enumerate(kernel.blocks) if k >= 2]
    else:
        positions = [(v, f"blockIdx.{'xyz'[k]}") for k, (v, _) in enumerate(kernel.blocks)]
    positions += [(v, f"threadIdx.{'xyz'[k]}") for k, (v, _) in enumerate(kernel.threads)]
    lines += [f"  const {c_type(str(v.ty.dtype))} {names.of(v)} = {where};" for v, where in positions if used(v)]
    if o.uses_random:
        lines.append("  tl::philox rng;")
    return lines


def source_text(name: str, kernels: list[KernelText]) -> str:
    """The whole source: what it includes, the user's preludes, the kernels."""
    needs = sorted({"math.cuh"}.union(*(k.needs for k in kernels)))
    preludes = dict.fromkeys(k.prelude for k in kernels if k.prelude)
    definitions = dict(item for k in kernels for item in k.definitions.items())
    includes = "\n".join(f"#include <tilelang/{h}>" for h in needs)
    parts = [f"// {name}", includes, *preludes, *(d.rstrip() for d in definitions.values()), *(k.text for k in kernels)]
    return "\n\n".join(parts) + "\n"


def compile_flags(func: PrimFunc, ctx: PassContext) -> list[str]:
    """Flags for the device compiler from the program and the pass configuration."""
    attrs = func.attrs or {}
    flags = [str(f) for f in attrs["tl.compile_flags"]] if "tl.compile_flags" in attrs else []
    more = ctx.config.get("tl.device_compile_flags", ())
    flags += more.split() if isinstance(more, str) else [str(f) for f in more or ()]
    if ctx.flag("tl.enable_fast_math"):
        flags.append("--use_fast_math")
    return flags


__all__ = ["CudaProgram", "KernelFacts", "KernelText", "compile_flags", "free_variables", "print_kernel", "source_text"]
