"""Memory of a tile program: every allocator, and views of what was allocated.

In: extents, an element type, a storage scope. Out: a TVM buffer (`tvm.tirx.is_buffer_var` holds), named like the
variable it is assigned to and carrying that line as its span.

| call | scope | who has it | life |
|---|---|---|---|
| `alloc_shared` | "shared.dyn" (or "shared") | one tile for the block, any thread reads any element | the kernel |
| `alloc_fragment` | "local.fragment" | one tile for the block, spread over its threads' registers by the compiler | the kernel |
| `alloc_local` | "local" | a private array for each thread (each iteration inside `T.Parallel`) | the kernel |
| `alloc_var` | "local.var" | a private mutable scalar for each thread (each iteration inside `T.Parallel`) | the kernel |
| `alloc_global` | "global" | one workspace for the whole launch | the call |

An allocation in a loop is one allocation that all iterations share. Contents are undefined until written, except that
a variable starts as zero. Sizes count in elements; types of less than a byte are packed (an int4 tile of 64 elements
has 256 bits). The functions work in a kernel of this package and in a plain TVMScript function; elsewhere they raise
`JITNoBuilderError`. Allocators of memory that only a GPU has record their name: compiling for the CPU raises at that line.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar

from ..errors import TileAssertionError, TileNotSupportedError, TileTypeError, TileValueError, warn
from ..ir import builder as builders
from ..ir.annotations import PointerParam, shape_tuple
from ..ir.dialect import (
    BARRIER,
    CLUSTER_BARRIER,
    DESCRIPTORS,
    FRAGMENT,
    GLOBAL,
    LOCAL,
    REDUCER,
    SCOPES,
    SHARED,
    SHARED_DYN,
    SHARED_SCOPES,
    TMEM,
    VAR,
)  # fmt: skip
from ..ir.dtypes import canonical
from ..ir.dtypes import dtype as element_type
from ..ir.expr import as_value, convert, representable
from ..ir.positions import same
from ..ir.rewrite import walk
from ..ir.tvm_api import (
    DeclBuffer,
    Expr,
    FloatImm,
    IntImm,
    TensorLoad,
    Var,
    const,
    decl_buffer,
    dtype_of,
    in_tvm_script,
    is_buffer,
    script_alloc,
    script_store,
    shape_of,
)  # fmt: skip

_P = ParamSpec("_P")
_R = TypeVar("_R")


class _Default(str):
    """A scope that was not given by the caller: equal to the given one, but told apart by its class."""

    __slots__ = ()


_SHARED_DEFAULT, _VAR_DEFAULT = _Default(SHARED_DYN), _Default(VAR)
_VECTOR_ALIGNMENT = 64  # bytes; our own memory, so that vectors of any width are aligned
MOST_ELEMENTS = (1 << 31) - 1  # offsets into what a program allocates have 32 bits
REDUCE_OPS = ("sum", "max", "min", "bitand", "bitor", "bitxor")


# ---------------------------------------------------------------- the four scopes
def _checked_call(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Turn a wrong number or name of arguments into our error, which has the user's line."""
    signature = inspect.signature(function)
    plain = [p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()]
    usage = f"T.{function.__name__}{inspect.Signature(plain)}"

    @functools.wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            signature.bind(*args, **kwargs)
        except TypeError as problem:
            name = f"T.{function.__name__}"
            given = ", ".join([*map(repr, args), *(f"{k}={v!r}" for k, v in kwargs.items())])
            raise TileTypeError(f"{name}({given}): {problem}", remedy=f"the call is {usage}") from None
        return function(*args, **kwargs)

    return call


@_checked_call
def alloc_shared(shape: Any, dtype: Any, scope: str = _SHARED_DEFAULT) -> Var:
    """Allocate a tile in memory shared by the threads of a block.

    shape: an int, or a list or tuple of extents in elements (symbolic ones allowed). dtype: a name, `T.float16`, or a
    torch, NumPy or Python type. scope: "shared.dyn", or "shared" for static shared memory; a given scope is kept.
    With the default scope a bool tile is static ("shared").

    Returns a buffer of that shape, dtype and scope. Raises `TileValueError` (extent <= 0, unknown scope),
    `TileTypeError` (unknown dtype, no shape), `JITNoBuilderError` (outside a kernel).
    """
    kind = _element(dtype, "T.alloc_shared")
    if isinstance(scope, _Default):
        scope = SHARED if kind == "bool" else SHARED_DYN
    return _allocate("T.alloc_shared", shape, kind, scope, "shared")


@_checked_call
def alloc_local(shape: Any, dtype: Any, scope: str = LOCAL) -> Var:
    """Allocate a private array for each thread (inside `T.Parallel`: for each iteration).

    shape: an int, or a list or tuple of compile-time extents in elements. dtype: as in `alloc_shared`. scope: kept as given.
    Returns the buffer; raises as `alloc_shared`, and `TileValueError` for an extent that is not a constant.
    """
    return _allocate("T.alloc_local", shape, _element(dtype, "T.alloc_local"), scope, "local")


@_checked_call
def alloc_fragment(shape: Any, dtype: Any, scope: str = FRAGMENT) -> Var:
    """Allocate a tile that lives in the registers of the block's threads; the compiler chooses which thread owns what.

    shape: an int, or a list or tuple of compile-time extents in elements (of the whole tile). dtype: as in
    `alloc_shared`. scope: kept as given. Returns the buffer; raises as `alloc_local`.
    """
    return _allocate("T.alloc_fragment", shape, _element(dtype, "T.alloc_fragment"), scope, "fragment")


@_checked_call
def alloc_var(dtype: Any, *args: Any, scope: str = _VAR_DEFAULT, init: Any = None) -> Var:
    """Allocate a mutable scalar for each thread (inside `T.Parallel`: for each iteration).

    Forms: `alloc_var(dtype)`, `(dtype, init)`, `(dtype, "local.var")`, `(dtype, init, "local.var")`, and keywords
    `init=`, `scope=`. A name bound to it is assigned with `x = e`, `x += e`; `x[0]` is the same element.

    It starts as zero. An initial value is a store at this point: in a loop it is stored again by every iteration. It may be a
    number that the type can hold, or any scalar expression. Returns a buffer of shape (1,). Raises `TileTypeError` (two
    initial values, two scopes, too many arguments, a scope that is no string), `TileValueError` (a number outside the type's range).
    """
    what = "T.alloc_var"
    if len(args) > 2:
        raise TileTypeError(f"{what} takes at most 3 positional arguments (dtype, init, scope), got {1 + len(args)}")
    if len(args) == 2 and not isinstance(args[-1], str):
        raise TileTypeError(f"{what}: the third argument is the scope, a string such as {VAR!r}; got {args[-1]!r}")
    first, second = (*args, None, None)[:2]
    lone_scope = len(args) == 1 and isinstance(first, str)
    positional_init = None if lone_scope else first
    positional_scope = first if lone_scope else second
    if positional_init is not None and init is not None:
        raise TileTypeError(f"{what}: two initial values, {positional_init!r} and init={init!r}")
    if positional_scope is not None and not isinstance(scope, _Default):
        raise TileTypeError(f"{what}: two scopes, {positional_scope!r} and scope={scope!r}")
    value = positional_init if positional_init is not None else init
    kind = _element(dtype, what)
    if value is not None:
        value = _initial(value, kind, what)
    variable = _allocate(what, 1, kind, scope if positional_scope is None else positional_scope, "var")
    if value is not None:
        _store(variable, value)
    return variable


@_checked_call
def alloc_global(shape: Any, dtype: Any, scope: str = GLOBAL) -> Var:
    """Declare a workspace in global memory: one for the whole launch, allocated for the call, contents undefined.

    It may stand inside `T.Kernel` or before it. shape: extents in elements, symbolic ones allowed. dtype: as in `alloc_shared`.
    """
    return _allocate("T.alloc_global", shape, _element(dtype, "T.alloc_global"), scope, "workspace", host=True)


@_checked_call
def alloc_buffer(shape: Any, dtype: Any = "float32", scope: str = GLOBAL) -> Var:
    """Allocate a buffer of any storage scope, e.g. `T.alloc_buffer((64,), "float32", scope="shared")`."""
    return _allocate("T.alloc_buffer", shape, _element(dtype, "T.alloc_buffer"), scope, "buffer", host=True)


# ---------------------------------------------------------------- reducers and barriers
@_checked_call
def alloc_reducer(shape: Any, dtype: Any, op: str = "sum", replication: str | None = None) -> Var:
    """Allocate an accumulator for contributions from a `T.Parallel` loop.

    op: "sum", "max", "min", and for integers and bool "bitand", "bitor", "bitxor". Use: `T.reducer_init(acc)`,
    `T.reducer_update(acc[i], value)` inside the loop, `T.finalize_reducer(acc, dst)`.

    replication="all" or "none" (deprecated) gives a fragment instead, updated by `acc[i] += v` and finished in place by
    `T.finalize_reducer(acc)`. Raises `TileValueError` for an unknown op or replication, or bit operations on floats.
    """
    what = "T.alloc_reducer"
    kind = _element(dtype, what)
    if op not in REDUCE_OPS:
        raise TileValueError(f"{what}: op {op!r} is unknown; there are {', '.join(REDUCE_OPS)}")
    if op.startswith("bit") and kind.info.kind == "float":
        raise TileValueError(f"{what}: op {op!r} needs integers or bool, not {kind}")
    if replication is None:
        return _allocate(what, shape, kind, REDUCER, "reducer", {"op": op})
    if replication not in ("all", "none"):
        raise TileValueError(f"{what}: replication {replication!r} is unknown; there are 'all' and 'none'")
    if op.startswith("bit"):
        raise TileValueError(f"{what}: op {op!r} does not go with replication=", remedy="leave replication= out")
    at = builders.current(what).location if builders.active() else None
    warn(
        f"{what}(replication={replication!r}) is deprecated: leave it out and use T.reducer_init, T.reducer_update, T.finalize_reducer",
        DeprecationWarning,
        at,
    )
    return _allocate(what, shape, kind, FRAGMENT, "reducer", {"op": op, "replication": replication})


@_checked_call
def alloc_barrier(arrive_count: Any) -> Var:
    """Allocate mbarriers in shared memory.

    arrive_count: how many arrivals complete a phase, a positive int, or a list of them for as many barriers. Returns a
    buffer of shape (number of barriers,), uint64, scope "shared.barrier"; as an operand the buffer means its element 0.
    """
    return _barriers("T.alloc_barrier", arrive_count, BARRIER, {})


@_checked_call
def alloc_cluster_barrier(arrive_count: Any) -> Var:
    """Allocate mbarriers that the blocks of a cluster see; arguments and result as `alloc_barrier`. Hopper and later only."""
    return _barriers("T.alloc_cluster_barrier", arrive_count, CLUSTER_BARRIER, {"gpu_only": "T.alloc_cluster_barrier"})


def _barriers(what: str, arrive_count: Any, scope: str, facts: dict[str, Any]) -> Var:
    counts = list(arrive_count) if isinstance(arrive_count, Sequence) and not isinstance(arrive_count, str) else [arrive_count]
    if not counts:
        raise TileValueError(f"{what}: no arrive count")
    found = []
    for count in counts:
        number = int(count) if isinstance(count, IntImm) else count
        if not isinstance(number, int) or isinstance(number, bool):
            raise TileTypeError(f"{what}: arrive count {count!r} is no compile-time int")
        if number <= 0:
            raise TileValueError(f"{what}: arrive count is {number}; it must be positive")
        found.append(number)
    return _allocate(what, len(found), canonical("uint64"), scope, "barrier", {"arrive_counts": found, **facts})


# ---------------------------------------------------------------- memory of newer GPUs
@_checked_call
def alloc_tmem(shape: Any, dtype: Any) -> Var:
    """Allocate tensor memory, two or more extents. Exists on Blackwell GPUs only: other targets raise when compiling."""
    extents = shape_tuple(shape, "T.alloc_tmem", zero=False)
    if len(extents) < 2:
        raise TileAssertionError(f"T.alloc_tmem: {len(extents)} extents in shape {extents}; tensor memory has at least 2 dimensions")
    return _allocate("T.alloc_tmem", extents, _element(dtype, "T.alloc_tmem"), TMEM, "tmem", {"gpu_only": "T.alloc_tmem"})


@_checked_call
def alloc_descriptor(kind: str = "wgmma", dtype: Any = "uint64") -> Var:
    """Allocate a matrix descriptor for raw tensor-core instructions: "wgmma", "tcgen05_smem" or "tcgen05_instr". GPUs only."""
    kinds = [scope.rpartition(".")[2] for scope in DESCRIPTORS]
    if kind not in kinds:
        raise TileValueError(f"T.alloc_descriptor: kind {kind!r} is unknown; there are {', '.join(kinds)}")
    element = _element(dtype, "T.alloc_descriptor")
    return _allocate("T.alloc_descriptor", 1, element, f"local.descriptor.{kind}", "desc", {"gpu_only": "T.alloc_descriptor"})


def alloc_wgmma_desc(dtype: Any = "uint64") -> Var:
    """`alloc_descriptor("wgmma")`."""
    return alloc_descriptor("wgmma", dtype)


def alloc_tcgen05_smem_desc(dtype: Any = "uint64") -> Var:
    """`alloc_descriptor("tcgen05_smem")`."""
    return alloc_descriptor("tcgen05_smem", dtype)


def alloc_tcgen05_instruction_desc(dtype: Any = "uint32") -> Var:
    """`alloc_descriptor("tcgen05_instr", "uint32")`."""
    return alloc_descriptor("tcgen05_instr", dtype)


alloc_tcgen05_instr_desc = alloc_tcgen05_instruction_desc


# ---------------------------------------------------------------- views
def view(src: Var, shape: Any = None, dtype: Any = None) -> Var:
    """Another name for the same storage, with another shape or element type (the bits are reinterpreted).

    src: a buffer of any scope, contiguous. shape: default the shape of `src`. dtype: default its dtype.
    Raises `TileAssertionError` unless both have provably the same number of bits.
    """
    return _view("T.view", src, shape, dtype)


def reshape(src: Var, shape: Any) -> Var:
    """Another name for the same storage with another shape of equally many elements; see `view`."""
    return _view("T.reshape", src, shape, None)


def _view(what: str, src: Any, shape: Any, dtype: Any) -> Var:
    builder = builders.current(what)
    if not (isinstance(src, Var) and is_buffer(src)):
        raise TileTypeError(f"{what}: {src!r} is no buffer", remedy="give a whole buffer; index the view instead of the source")
    if len(src.strides):
        raise TileValueError(f"{what}: {src.name} is strided; only contiguous storage has another shape")
    old = shape_of(src)
    new = old if shape is None else shape_tuple(shape, what, zero=False)
    kind = canonical(dtype_of(src)) if dtype is None else _element(dtype, what)
    have, want = _bits(old, canonical(dtype_of(src))), _bits(new, kind)
    equal = have == want if isinstance(have, int) and isinstance(want, int) else same(have, want)
    if not equal:
        raise TileAssertionError(
            f"{what}: {src.name} of shape {old} and type {dtype_of(src)} has {have} bits, "
            f"the view of shape {new} and type {kind} has {want} bits; they must be equal"
        )
    alias = decl_buffer(new, kind.storage, builder.name(f"{src.name}_view"), src.scope(), alignment=_alignment(kind), span=builder.span())
    builder.emit(DeclBuffer(alias, builder.span(), data=src.data))
    return alias


def _bits(shape: Sequence[Any], kind: element_type) -> Any:
    total: Any = kind.bits * kind.lanes
    for extent in shape:
        total = total * extent
    return total


# ---------------------------------------------------------------- shared by all
def _element(value: Any, what: str) -> element_type:
    """Element type of an allocation; the pointer marker `T.ptr` means an address, kept as int64."""
    if isinstance(value, PointerParam) or getattr(value, "is_pointer_marker", False):
        return canonical("int64")
    try:
        return canonical(value)
    except TileTypeError as problem:
        raise TileTypeError(f"{what}: {problem.message}", remedy=problem.remedy) from None


def _scope(scope: Any, what: str) -> str:
    if not isinstance(scope, str):
        raise TileTypeError(f"{what}: scope {scope!r} ({type(scope).__name__}) is no string")
    if scope not in SCOPES:
        near = difflib.get_close_matches(scope, SCOPES, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise TileValueError(f"{what}: unknown scope {scope!r}", remedy=f"{hint}scopes are {', '.join(map(repr, SCOPES))}")
    return str(scope)


def _allocate(
    what: str, shape: Any, kind: element_type, scope: Any, default_name: str, facts: Mapping[str, Any] | None = None, host: bool = False
) -> Var:
    """Check the extents against the scope, declare the buffer, put the allocation into the program."""
    scope = _scope(scope, what)
    extents = shape_tuple(shape, what, zero=False)
    if not extents:
        raise TileValueError(f"{what}: shape () has no extents; a scalar is T.alloc_var(dtype) or shape (1,)")
    _check_symbolic(what, extents, scope)
    _check_size(what, extents)
    if scope == VAR and extents != (1,):
        raise TileValueError(f"{what}: scope {VAR!r} holds one scalar, not shape {extents}", remedy="use T.alloc_local for an array")
    if kind == "handle":
        remedy = "keep addresses as int64 and use T.make_tensor_from_addr"
        raise TileNotSupportedError(f"{what}: a buffer of addresses ({kind})", remedy=remedy)
    if not builders.active() and in_tvm_script():
        buffer = script_alloc(extents, kind.storage, scope, _alignment(kind, scope), {"tl.alloc": dict(facts)} if facts else None)
        if scope == VAR:
            script_store(buffer, const(0, kind.storage), [0])
        return buffer
    builder = builders.current(what) if host and scope == GLOBAL else builders.in_kernel(what)
    buffer = decl_buffer(extents, kind.storage, builder.name(default_name), scope, alignment=_alignment(kind, scope), span=builder.span())
    return builder.alloc(buffer, facts)


def _alignment(kind: element_type, scope: str = "") -> int:
    """Bytes. Variables and views have the element's alignment (0 = default), our own tiles that of the widest vector."""
    return 0 if scope in ("", VAR, BARRIER, CLUSTER_BARRIER) else _VECTOR_ALIGNMENT


def _check_symbolic(what: str, extents: Sequence[Any], scope: str) -> None:
    for axis, extent in enumerate(extents):
        if isinstance(extent, int):
            continue
        if scope not in (*SHARED_SCOPES, GLOBAL):
            raise TileValueError(
                f"{what}: extent {axis} is {extent}; memory of scope {scope!r} needs compile-time extents",
                remedy="make the extent a Python int, or use T.alloc_shared for a size known at launch",
            )
        _check_launch_constant(what, axis, extent)


def _check_size(what: str, extents: Sequence[Any]) -> None:
    count = math.prod(extent for extent in extents if isinstance(extent, int))
    if count > MOST_ELEMENTS:
        raise TileValueError(
            f"{what}: shape {tuple(extents)} has {count:,} elements; an allocation has at most {MOST_ELEMENTS:,}",
            remedy="pass larger tensors as parameters",
        )


def _check_launch_constant(what: str, axis: int, extent: Expr) -> None:
    """A symbolic extent must be computable before the launch: made of parameters, not of memory."""
    loads: list[str] = []
    walk(extent, {TensorLoad: lambda node: loads.append(str(node.source.name))})
    if loads:
        raise TileValueError(f"{what}: extent {axis} is {extent}, which reads {loads[0]}; an extent must be known before the launch")


def _initial(value: Any, kind: element_type, what: str) -> Any:
    """An initial value in the variable's type; a constant must be one that the type can hold."""
    found = as_value(value)
    number = int(found) if isinstance(found, IntImm) else float(found.value) if isinstance(found, FloatImm) else found
    if not isinstance(number, Expr) and not representable(number, kind.storage):
        facts = kind.info
        raise TileValueError(f"{what}: initial value {number!r} is not representable in {kind} (range {facts.low} to {facts.high})")
    return convert(number, kind.storage)


def _store(buffer: Var, value: Any) -> None:
    if builders.active():
        builders.current("T.alloc_var").store(buffer, value, [0])
    else:
        script_store(buffer, value, [0])
