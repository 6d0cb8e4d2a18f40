"""T.reduce_*: one dimension of a tile combined into one value for each remaining position.

In: a tile, an output tile, the dimension. Out: a `tl.tileop.reduce` statement. `Combine` (identity and step of each
kind, for every element type) is shared with scans and reducers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import TileTypeError, TileValueError
from ..ir.builder import in_kernel
from ..ir.dialect import FRAGMENT, LOCAL, SHARED, SHARED_DYN, VAR, make_call
from ..ir.dtype_table import info
from ..ir.expr import binary, constant, convert, select, unary
from ..ir.tvm_api import Call, Expr, Stmt, Var, dtype_of, load, seq, store, tirx
from .base import LowerContext, TileOperator
from .loops import (
    Accumulator,
    accumulation_dtype,
    extents_of,
    indices,
    is_float,
    is_unit,
    may_overlap,
    nest,
    serial,
    staged,
    wide_dims,
)  # fmt: skip
from .operands import Operand, is_one, operand, require_inside, same, shape_text

KINDS = ("sum", "abssum", "max", "min", "absmax", "bitand", "bitor", "bitxor")
_BITS = {"bitand": "&", "bitor": "|", "bitxor": "^"}


# ---------------------------------------------------------------- algebra
@dataclass(frozen=True)
class Combine:
    """One kind of reduction on values of type `dtype`. nan_propagate: max and min of a NaN are NaN; otherwise a NaN
    counts as no value."""

    kind: str
    dtype: str
    nan_propagate: bool = False

    def identity(self, element: str) -> Expr:
        """The value that changes nothing, within the range of the element type `element`."""
        facts = info(element)
        if self.kind == "max":
            return constant(-_infinity(facts) if facts.kind == "float" else facts.low, self.dtype)
        if self.kind == "min":
            return constant(_infinity(facts) if facts.kind == "float" else facts.high, self.dtype)
        if self.kind == "bitand":
            return constant(1 if facts.kind == "bool" else -1, self.dtype)
        return constant(0, self.dtype)

    def value(self, element: Expr) -> Expr:
        """What an element contributes: itself, or its magnitude."""
        element = convert(element, self.dtype)
        if self.kind not in ("abssum", "absmax") or self.dtype.startswith("uint"):
            return element
        if is_float(self.dtype):
            return tirx.abs(element)
        return select(binary("<", element, 0), unary("-", element), element)

    def step(self, total: Expr, new: Expr) -> Expr:
        """`total` combined with one more contribution."""
        if self.kind in ("sum", "abssum"):
            return total + new
        if self.kind in _BITS:
            return binary(_BITS[self.kind], total, new)
        take = binary("<" if self.kind == "min" else ">", new, total)
        if self.nan_propagate and is_float(self.dtype):
            take = tirx.Or(take, _is_nan(new, self.dtype))
        return select(take, new, total)


def _is_nan(value: Expr, dtype: str) -> Expr:
    """By its bits: comparisons of a value with itself are folded away by simplifiers that know no NaN."""
    bits, infinity = ("uint64", 0x7FF0 << 48) if dtype == "float64" else ("uint32", 0x7F80 << 16)
    mask = constant((1 << (int(bits[4:]) - 1)) - 1, bits)
    return binary(">", binary("&", tirx.reinterpret(bits, value), mask), constant(infinity, bits))


def _infinity(facts: Any) -> float:
    return float("inf") if facts.has_infinity else float(facts.high)


def combine_for(kind: str, source: str, target: str, nan_propagate: bool = False) -> Combine:
    """The reduction of `source` elements into a `target` element, in a type that loses nothing on the way."""
    dtype = accumulation_dtype(target)
    wide = accumulation_dtype(source)
    keeps_value = kind in ("max", "min", "absmax") and not is_float(dtype) and info(wide).bits >= info(dtype).bits
    if (is_float(wide) and (not is_float(dtype) or info(wide).bits > info(dtype).bits)) or keeps_value:
        dtype = wide
    return Combine(kind, dtype, nan_propagate)


# ---------------------------------------------------------------- the language
def reduce(
    buffer: Any, out: Any, reduce_type: str, dim: int = -1, clear: bool = True, *, batch: int = 1, nan_propagate: bool = False,
    annotations: Mapping[str, Any] | None = None,
) -> None:  # fmt: skip
    """Combine dimension `dim` of `buffer` into `out`.

    buffer, out: tiles in fragments or shared memory (any combination), or per-thread arrays; slices are allowed. out:
    the shape of buffer without `dim`, or with extent 1 there; (1,) for a one-dimensional buffer. reduce_type: sum,
    abssum, max, min, absmax, bitand, bitor, bitxor. clear: start anew; otherwise the old contents of `out` count once.
    nan_propagate: a NaN makes max, min and absmax NaN; by default NaNs are passed over. Sums of floats narrower than
    32 bits are formed in float32 and rounded once. batch: a hint, at least 1.

    Raises TileValueError for a dimension out of range, shapes or scopes that do not fit.
    """
    _emit("T.reduce", buffer, out, reduce_type, dim, clear, batch, nan_propagate)


def reduce_sum(
    buffer: Any, out: Any, dim: int = -1, clear: bool = True, *, batch: int = 1, annotations: Mapping[str, Any] | None = None
) -> None:
    """out = sum of `buffer` over `dim` (added to the old contents when not clear). Operands as in `T.reduce`."""
    _emit("T.reduce_sum", buffer, out, "sum", dim, clear, batch)


def reduce_abssum(buffer: Any, out: Any, dim: int = -1, *, batch: int = 1, annotations: Mapping[str, Any] | None = None) -> None:
    """out = sum of the magnitudes of `buffer` over `dim`; always starts anew. Operands as in `T.reduce`."""
    _emit("T.reduce_abssum", buffer, out, "abssum", dim, True, batch)


def reduce_max(
    buffer: Any, out: Any, dim: int = -1, clear: bool = True, *, batch: int = 1, nan_propagate: bool = False,
    annotations: Mapping[str, Any] | None = None,
) -> None:  # fmt: skip
    """out = largest element of `buffer` along `dim`. Operands and NaNs as in `T.reduce`."""
    _emit("T.reduce_max", buffer, out, "max", dim, clear, batch, nan_propagate)


def reduce_min(
    buffer: Any, out: Any, dim: int = -1, clear: bool = True, *, batch: int = 1, nan_propagate: bool = False,
    annotations: Mapping[str, Any] | None = None,
) -> None:  # fmt: skip
    """out = smallest element of `buffer` along `dim`. Operands and NaNs as in `T.reduce`."""
    _emit("T.reduce_min", buffer, out, "min", dim, clear, batch, nan_propagate)


def reduce_absmax(
    buffer: Any, out: Any, dim: int = -1, clear: bool = True, *, batch: int = 1, nan_propagate: bool = False,
    annotations: Mapping[str, Any] | None = None,
) -> None:  # fmt: skip
    """out = largest magnitude in `buffer` along `dim`. Operands and NaNs as in `T.reduce`."""
    _emit("T.reduce_absmax", buffer, out, "absmax", dim, clear, batch, nan_propagate)


def reduce_bitand(
    buffer: Any, out: Any, dim: int = -1, clear: bool = True, *, batch: int = 1, annotations: Mapping[str, Any] | None = None
) -> None:
    """out = bitwise and of the integers of `buffer` along `dim`. Operands as in `T.reduce`."""
    _emit("T.reduce_bitand", buffer, out, "bitand", dim, clear, batch)


def reduce_bitor(
    buffer: Any, out: Any, dim: int = -1, clear: bool = True, *, batch: int = 1, annotations: Mapping[str, Any] | None = None
) -> None:
    """out = bitwise or of the integers of `buffer` along `dim`. Operands as in `T.reduce`."""
    _emit("T.reduce_bitor", buffer, out, "bitor", dim, clear, batch)


def reduce_bitxor(
    buffer: Any, out: Any, dim: int = -1, clear: bool = True, *, batch: int = 1, annotations: Mapping[str, Any] | None = None
) -> None:
    """out = bitwise exclusive or of the integers of `buffer` along `dim`. Operands as in `T.reduce`."""
    _emit("T.reduce_bitxor", buffer, out, "bitxor", dim, clear, batch)


# ---------------------------------------------------------------- checks
def _emit(what: str, buffer: Any, out: Any, kind: Any, dim: Any, clear: Any, batch: Any, nan_propagate: Any = False) -> None:
    builder = in_kernel(what)
    if kind not in KINDS:
        raise TileValueError(f"{what}: reduce_type={kind!r}; accepted: {', '.join(KINDS)}")
    if not isinstance(batch, int) or isinstance(batch, bool) or batch < 1:
        raise TileValueError(f"{what}: batch={batch!r} must be an int of at least 1")
    if not isinstance(clear, bool | int):
        raise TileTypeError(f"{what}: clear={clear!r} must be a Python bool", remedy="use T.if_then_else or a separate T.fill of out")
    source, target = operand(buffer, "buffer", what), operand(out, "out", what)
    _check_scopes(source, target, what)
    require_inside(source, what)
    require_inside(target, what)
    dim = normalise_dim(dim, source, what)
    _check_shape(source, target, dim, what)
    if kind in _BITS and any(is_float(o.dtype) for o in (source, target)):
        raise TileTypeError(f"{what}: {source} and {target} must hold integers or bools for {kind}")
    builder.evaluate(
        make_call(
            "tl.tileop.reduce", [source.region, target.region], kind=kind, dim=dim, clear=bool(clear), nan_propagate=bool(nan_propagate)
        )
    )


def _check_scopes(source: Operand, target: Operand, what: str) -> None:
    tiles = (FRAGMENT, SHARED, SHARED_DYN)
    if source.scope in tiles and target.scope in tiles:
        return
    if source.scope == LOCAL and target.scope in (LOCAL, VAR):
        return
    raise TileValueError(
        f"{what}: cannot reduce {source} into {target}: both must be fragments or shared tiles, or buffer a local array and out a"
        " local array or variable",
        remedy="copy the operand into a fragment first, for example with T.copy",
    )


def normalise_dim(dim: Any, source: Operand, what: str) -> int:
    """`dim` counted from the first dimension; TileValueError when out of range."""
    rank = len(source.extents)
    if not isinstance(dim, int) or isinstance(dim, bool):
        raise TileTypeError(f"{what}: dim={dim!r} must be an int")
    if not -rank <= dim < rank:
        raise TileValueError(f"{what}: dim={dim} is out of range for {source}", remedy=f"dim is {-rank} to {rank - 1}")
    return dim % rank


def _check_shape(source: Operand, target: Operand, dim: int, what: str) -> None:
    rest = [e for k, e in enumerate(source.extents) if k != dim]
    kept = [1 if k == dim else e for k, e in enumerate(source.extents)]
    accepted = [kept, rest or [1]]
    if source.form != "buffer" or target.form != "buffer":  # slices: unit extents do not count
        accepted = [[e for e in shape if not is_one(e)] for shape in accepted]
        have = [e for e in target.extents if not is_one(e)]
    else:
        have = list(target.extents)
    if any(len(shape) == len(have) and all(map(same, shape, have)) for shape in accepted):
        return
    raise TileValueError(
        f"{what}: {target} cannot hold {source} reduced over dim {dim}",
        remedy=f"out must have the shape {shape_text(rest or [1])} or {shape_text(kept)}",
    )


# ---------------------------------------------------------------- meaning
def lower(call: Call, ctx: LowerContext) -> Stmt:
    """For each position of the output: a serial loop over the reduced dimension into a variable, then one store."""
    src, out = call.args[0], call.args[1]
    dim, clear = int(call.attrs["dim"]), bool(call.attrs["clear"])
    combine = combine_for(str(call.attrs["kind"]), dtype_of(src), dtype_of(out), bool(call.attrs["nan_propagate"]))
    before: list[Stmt] = []
    if may_overlap(src, out, ctx):
        src, fill = staged(src, ctx, keep=len(src.region))
        before.append(fill)
    rest = [k for k in wide_dims(src) if k != dim]
    target = wide_dims(out)

    def body(position: list[Var]) -> list[Stmt]:
        acc = Accumulator(combine.dtype, ctx)
        place = indices(out, dict(zip(target, position, strict=True)))

        def step(r: Any) -> list[Stmt]:
            element = load(src.source, indices(src, {**dict(zip(rest, position, strict=True)), dim: r}))
            return [acc.set(combine.step(acc.value, combine.value(element)))]

        extent = extents_of(src)[dim]
        loop = step(0) if is_unit(extent) else [serial(extent, step, ctx)]
        total = acc.value
        if not clear:
            total = combine.step(total, convert(load(out.source, place), combine.dtype))
        return [*acc.declare(combine.identity(dtype_of(src))), *loop, store(out.source, convert(total, dtype_of(out)), place, ctx.span)]

    return seq([*before, nest([extents_of(src)[k] for k in rest], body, ctx, scalar=True)])


REDUCE = TileOperator("tl.tileop.reduce", lower)
