"""T.gemm: the matrix product of two tiles, accumulated into a third.

In: A, B, C as buffers or slices; the product is taken over their last two dimensions. Out: a `tl.tileop.gemm` statement.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any

from ..errors import TileAssertionError, TileNotSupportedError, TileTypeError, TileValueError
from ..ir.builder import in_kernel
from ..ir.dialect import BARRIER, BLOCK_SCOPES, LOCAL, attr, make_call
from ..ir.expr import convert, if_then_else, truth
from ..ir.tvm_api import Call, Expr, IntImm, Stmt, TensorLoad, TensorRegion, Var, const, dtype_of, is_buffer, load, seq, store
from .base import LowerContext, TileOperator
from .loops import Accumulator, accumulation_dtype, extents_of, indices, is_float, may_overlap, nest, serial, staged
from .operands import Operand, is_one, operand, require_inside, same, shape_text


class GemmWarpPolicy(IntEnum):
    """How the warps of the block share the rows and columns of C: no effect on results."""

    Square = 0
    FullRow = 1
    FullCol = 2


# ---------------------------------------------------------------- the language
def gemm(
    A: Any, B: Any, C: Any, transpose_A: bool = False, transpose_B: bool = False, policy: GemmWarpPolicy = GemmWarpPolicy.Square,
    clear_accum: Any = False, k_pack: int = 1, wg_wait: Any = 0, *, mbar: Any = None, annotations: Mapping[str, Any] | None = None,
) -> None:  # fmt: skip
    """C += op(A) @ op(B), or C = op(A) @ op(B) where `clear_accum` holds.

    A: (M, K), or (K, M) with transpose_A. B: (K, N), or (N, K) with transpose_B. C: (M, N). Each may have leading
    dimensions of extent 1. A and B have one element type (two 8-bit float types, or two 8-bit integer types, may be
    mixed); products are summed in the type of C, in float32 if that is a narrower float. clear_accum: a Python bool or
    a condition of the program. policy, k_pack, wg_wait, mbar: hints. The ninth argument may be wg_wait or a barrier.

    Raises TileAssertionError when sizes do not fit, TileTypeError for element types without a product.
    """
    if wg_wait is not None and not isinstance(wg_wait, int):
        wg_wait, mbar = 0, wg_wait
    if mbar is not None:
        _check_barrier(mbar)
    _emit("T.gemm", A, B, C, transpose_A, transpose_B, policy, clear_accum, {"k_pack": _k_pack(k_pack), "wg_wait": wg_wait})


def wgmma_gemm(
    A: Any, B: Any, C: Any, transpose_A: bool = False, transpose_B: bool = False, policy: GemmWarpPolicy = GemmWarpPolicy.Square,
    clear_accum: Any = False, *, annotations: Mapping[str, Any] | None = None,
) -> None:  # fmt: skip
    """`T.gemm` on Hopper's warpgroup instructions, left in flight: `T.wait_wgmma(n)` waits. Operands as in `T.gemm`.

    On targets without those instructions the product is complete when the statement ends.
    """
    _emit("T.wgmma_gemm", A, B, C, transpose_A, transpose_B, policy, clear_accum, {"wg_wait": -1, "instruction": "wgmma"})


def gemm_sp(
    A_sparse: Any, E: Any, B: Any, C: Any, transpose_A: bool = False, transpose_E: bool = False, transpose_B: bool = False,
    policy: GemmWarpPolicy = GemmWarpPolicy.Square, clear_accum: Any = False, k_pack: int = 1, wg_wait: int = 0,
    annotations: Mapping[str, Any] | None = None,
) -> None:  # fmt: skip
    """The product with a 2:4 sparse A (values and metadata E): not supported."""
    raise TileNotSupportedError(
        "T.gemm_sp: the metadata of 2:4 sparse operands is a format of GPU instructions that no target here has",
        remedy="expand A to a dense tile and use T.gemm",
    )


# ---------------------------------------------------------------- checks
def _check_barrier(mbar: Any) -> None:
    buffer = mbar.source if isinstance(mbar, TensorLoad) else mbar
    if not (isinstance(buffer, Var) and is_buffer(buffer) and buffer.scope() == BARRIER):
        raise TileTypeError(f"T.gemm: mbar={mbar!r} is no barrier", remedy="pass wg_wait as an int, or mbar as a T.alloc_barrier element")


def _k_pack(k_pack: Any) -> int:
    if k_pack not in (1, 2):
        raise TileValueError(f"T.gemm: k_pack={k_pack!r}; accepted: 1, 2")
    return int(k_pack)


def _flag(value: Any, name: str, what: str) -> bool:
    if isinstance(value, bool | int):
        return bool(value)
    raise TileTypeError(f"{what}: {name}={value!r} must be a Python bool", remedy="use an if of the program around two products")


def _policy(policy: Any, what: str) -> int:
    try:
        return int(GemmWarpPolicy(policy))
    except ValueError:
        raise TileValueError(f"{what}: policy={policy!r}; accepted: {', '.join(map(str, GemmWarpPolicy))}") from None


def _matrix(value: Any, role: str, what: str) -> Operand:
    found = operand(value, role, what, scopes=(*BLOCK_SCOPES[:3], LOCAL))
    if found.form == "corner":
        raise TileValueError(f"{what}: {found} is an element, not a matrix", remedy=f"slice it: {found.buffer.name}[i:i + M, j:j + N]")
    if len(found.extents) < 2 or not all(map(is_one, found.extents[:-2])):
        raise TileAssertionError(
            f"{what}: {found} is no matrix: it needs two dimensions, and leading ones of extent 1",
            remedy="index the leading dimensions, for example A[stage, :, :]",
        )
    require_inside(found, what)
    return found


def _check_sizes(a: Operand, b: Operand, c: Operand, transposed: tuple[bool, bool], what: str) -> None:
    (m, ka), (kb, n) = a.extents[-2:], b.extents[-2:]
    if transposed[0]:
        m, ka = ka, m
    if transposed[1]:
        kb, n = n, kb
    shapes = f"A {shape_text(a.extents)}, B {shape_text(b.extents)}, C {shape_text(c.extents)}"
    flags = f"transpose_A={transposed[0]}, transpose_B={transposed[1]}"
    for axis, left, right, where in (
        ("K", ka, kb, f"{a.buffer.name} has K = {ka}, {b.buffer.name} has K = {kb}"),
        ("M", m, c.extents[-2], f"{a.buffer.name} has M = {m}, {c.buffer.name} has {c.extents[-2]} rows"),
        ("N", n, c.extents[-1], f"{b.buffer.name} has N = {n}, {c.buffer.name} has {c.extents[-1]} columns"),
    ):
        if not same(left, right):
            raise TileAssertionError(
                f"{what}: {axis} shape check failed: {where} ({shapes}, {flags})",
                remedy="A is (M, K) or, with transpose_A, (K, M); B is (K, N) or, with transpose_B, (N, K); C is (M, N)",
            )


def _check_types(a: Operand, b: Operand, c: Operand, what: str) -> None:
    def family(dtype: str) -> str:
        if dtype.startswith("float8"):
            return "float8"
        return "int8" if dtype in ("int8", "uint8") else dtype

    if family(a.dtype) != family(b.dtype):
        raise TileTypeError(f"{what}: {a} and {b} differ in element type", remedy="convert one of them with T.copy")
    if is_float(a.dtype) and not is_float(c.dtype):
        raise TileTypeError(f"{what}: products of {a.dtype} cannot be summed in {c}", remedy="use a float accumulator")


def _emit(
    what: str, A: Any, B: Any, C: Any, transpose_A: Any, transpose_B: Any, policy: Any, clear_accum: Any, hints: Mapping[str, Any]
) -> None:
    builder = in_kernel(what)
    a, b, c = _matrix(A, "A", what), _matrix(B, "B", what), _matrix(C, "C", what)
    transposed = _flag(transpose_A, "transpose_A", what), _flag(transpose_B, "transpose_B", what)
    _check_sizes(a, b, c, transposed, what)
    _check_types(a, b, c, what)
    clear = truth(clear_accum)
    operands = [a.region, b.region, c.region, const(clear, "bool") if isinstance(clear, bool) else clear]
    layout = {"transpose_A": transposed[0], "transpose_B": transposed[1], "policy": _policy(policy, what)}
    builder.evaluate(make_call("tl.tileop.gemm", operands, **layout, **hints))


# ---------------------------------------------------------------- meaning
def slices_of(call: Call) -> int:
    """Into how many parts the sum over K is cut (attribute `slices`, set by a backend): C is then (slices, M, N), and C[s] takes the
    products of the s-th part."""
    return int(attr(call, "slices", 1))


def lower(call: Call, ctx: LowerContext) -> Stmt:
    """C[i, j] = (clear ? 0 : C[i, j]) + sum over r of op(A)[i, r] * op(B)[r, j], as if A and B were read first."""
    a, b, c, clear = call.args
    before: list[Stmt] = []
    if may_overlap(a, c, ctx):
        a, fill = staged(a, ctx, keep=2)
        before.append(fill)
    if may_overlap(b, c, ctx):
        b, fill = staged(b, ctx, keep=2)
        before.append(fill)
    a_dims, b_dims = (-1, -2) if call.attrs["transpose_A"] else (-2, -1), (-1, -2) if call.attrs["transpose_B"] else (-2, -1)
    acc_dtype, slices, depth = accumulation_dtype(dtype_of(c)), slices_of(call), extents_of(a)[a_dims[1]]

    def element(block: TensorRegion, dims: tuple[int, int], row: Any, column: Any) -> Expr:
        rank = len(block.region)
        return load(block.source, indices(block, {rank + dims[0]: row, rank + dims[1]: column}))

    def body(position: list[Var]) -> list[Stmt]:
        *part, i, j = position
        acc = Accumulator(acc_dtype, ctx)
        where = {len(c.region) - 2: i, len(c.region) - 1: j}
        place = indices(c, {0: part[0], **where} if part else where)
        old = convert(load(c.source, place), acc_dtype)
        start = old if _is_constant(clear, 0) else if_then_else(clear, const(0, acc_dtype), old)

        def step(r: Any) -> list[Stmt]:
            r = part[0] * const(depth // slices, "int32") + r if part else r
            product = convert(element(a, a_dims, i, r), acc_dtype) * convert(element(b, b_dims, r, j), acc_dtype)
            return [acc.set(acc.value + product)]

        if _is_constant(clear, 1):
            start = const(0, acc_dtype)
        inner = depth // slices if part else depth
        return [*acc.declare(start), serial(inner, step, ctx), store(c.source, convert(acc.value, dtype_of(c)), place, ctx.span)]

    extents = extents_of(c)[-2:]
    return seq([*before, nest([slices, *extents] if slices > 1 else extents, body, ctx, scalar=True)])


def _is_constant(value: Expr, expected: int) -> bool:
    return isinstance(value, IntImm) and int(value) == expected


GEMM = TileOperator("tl.tileop.gemm", lower)
