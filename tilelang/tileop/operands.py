"""Operands of tile operators: from what a program writes (buffer, region, element) to a block of a buffer.

In: the values handed to a `T.` function. Out: `Operand` records and error texts that name buffers, shapes and scopes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import TileIndexError, TileTypeError, TileValueError
from ..ir.dialect import BARRIER, CLUSTER_BARRIER, DESCRIPTORS, GLOBAL, REDUCER, SHARED_SCOPES, TMEM
from ..ir.positions import simplified, surely
from ..ir.tvm_api import IntImm, TensorLoad, TensorRegion, Var, dtype_of, is_buffer, region, shape_of, tirx

# Storage that no ordinary tile operator may touch, and what to use there.
_SPECIAL = {
    REDUCER: "use T.reducer_init, T.reducer_update and T.finalize_reducer",
    BARRIER: "use the mbarrier functions",
    CLUSTER_BARRIER: "use the mbarrier functions",
    TMEM: "tensor memory exists on Blackwell GPUs only",
    **dict.fromkeys(DESCRIPTORS, "descriptors are operands of wgmma only"),
}


@dataclass(frozen=True)
class Operand:
    """A block of a buffer as an operand. form: "buffer" (all of it), "region" (slices) or "corner" (an element access:
    the tile that begins there, whose extents the other operand gives)."""

    buffer: Var
    mins: tuple[Any, ...]
    extents: tuple[Any, ...]
    form: str
    role: str

    @property
    def dtype(self) -> str:
        return dtype_of(self.buffer)

    @property
    def scope(self) -> str:
        return self.buffer.scope()

    @property
    def region(self) -> TensorRegion:
        return region(self.buffer, self.mins, self.extents)

    def with_extents(self, extents: Sequence[Any]) -> Operand:
        """The same corner with other extents, one for each dimension of the buffer."""
        return Operand(self.buffer, self.mins, tuple(extents), "region", self.role)

    def __str__(self) -> str:
        if self.form == "corner":
            place = f"{self.buffer.name}[{', '.join(map(str, self.mins))}]"
        elif self.form == "region":
            place = f"{self.buffer.name}[{', '.join(_slice(m, e) for m, e in zip(self.mins, self.extents, strict=True))}]"
        else:
            place = str(self.buffer.name)
        shape = "" if self.form == "corner" else f" of shape {shape_text(self.extents)}"
        return f"{self.role} {place}{shape} ({self.dtype}, {self.scope})"


def shape_text(extents: Sequence[Any]) -> str:
    """Extents as Python writes a tuple."""
    return "(" + ", ".join(map(str, extents)) + ("," if len(extents) == 1 else "") + ")"


def _slice(low: Any, extent: Any) -> str:
    return str(low) if is_one(extent) else f"{low}:{simplify(low + extent)}"


def simplify(value: Any) -> Any:
    """Constants as Python ints, other expressions in simplest form."""
    if isinstance(value, int):
        return value
    value = simplified(value)
    return int(value) if isinstance(value, IntImm) else value


def is_one(extent: Any) -> bool:
    return isinstance(extent, int) and extent == 1


def same(a: Any, b: Any) -> bool:
    """Are two extents provably equal?"""
    difference = simplify(a - b)
    return isinstance(difference, int) and difference == 0


def less(a: Any, b: Any) -> bool:
    """Is extent `a` provably smaller than `b`?"""
    if isinstance(a, int) and isinstance(b, int):
        return a < b
    return surely(b > a if isinstance(a, int) else a < b)


def operand(value: Any, role: str, what: str, *, scopes: Sequence[str] = (), reducer: bool = False) -> Operand:
    """The operand `role` ("src", "dst", "A", ...) of `what` ("T.copy").

    value: a buffer, a region or an element access; anything else is a TileTypeError. scopes: the allowed storage
    scopes (all ordinary ones when empty), else TileValueError. reducer: allow a reducer accumulator.
    """
    found = _operand(value, role, what)
    if found.scope in _SPECIAL and not (reducer and found.scope == REDUCER):
        raise TileValueError(f"{what}: {found} cannot be an operand", remedy=_SPECIAL[found.scope])
    if scopes and found.scope not in scopes:
        raise TileValueError(f"{what}: {found} is in scope {found.scope!r}; allowed here: {', '.join(scopes)}")
    return found


def _operand(value: Any, role: str, what: str) -> Operand:
    if isinstance(value, Var) and is_buffer(value):
        shape = shape_of(value)
        return Operand(value, (0,) * len(shape), shape, "buffer", role)
    if isinstance(value, TensorRegion):
        mins, extents = (tuple(simplify(getattr(r, key)) for r in value.region) for key in ("min", "extent"))
        return Operand(value.source, mins, extents, "region", role)
    if isinstance(value, TensorLoad):
        return _element(value, role, what)
    raise TileTypeError(
        f"{what}: {role} must be a buffer, a slice of one, or an element access, got {value!r} ({type(value).__name__})",
        remedy="pass for example A, A[0:64, k] or A[i, j]",
    )


def _element(value: TensorLoad, role: str, what: str) -> Operand:
    """An element access; a unit-stride vector index (how A[i, j:j+4] reads as a value) is a slice."""
    mins, extents, sliced = [], [], False
    for index in value.indices:
        if isinstance(index, tirx.Ramp) and isinstance(index.stride, IntImm) and int(index.stride) == 1:
            mins.append(simplify(index.base))
            extents.append(int(index.lanes))
            sliced = True
        elif index.ty.dtype.lanes != 1:
            raise TileValueError(f"{what}: {role} {value.source.name} is indexed by a vector; a tile needs unit-stride slices")
        else:
            mins.append(simplify(index))
            extents.append(1)
    return Operand(value.source, tuple(mins), tuple(extents), "region" if sliced else "corner", role)


def require_inside(found: Operand, what: str) -> None:
    """Reject a block that provably leaves its buffer (TileIndexError), or has a negative extent (TileValueError)."""
    for k, (low, extent, size) in enumerate(zip(found.mins, found.extents, shape_of(found.buffer), strict=True)):
        require_extent(found, k, extent, what)
        if (isinstance(low, int) and low < 0) or less(size, simplify(low + extent)):
            raise TileIndexError(
                f"{what}: {found} leaves the buffer: dimension {k} has extent {size}, the block covers {_slice(low, extent)}",
                remedy="shorten the slice to the buffer's shape",
            )


def require_extent(found: Operand, k: int, extent: Any, what: str) -> None:
    if isinstance(extent, int) and extent < 0:
        raise TileValueError(f"{what}: {found} has the negative extent {extent} in dimension {k}")


def scope_rank(scope: str) -> int:
    """0 innermost (registers), 1 shared, 2 global."""
    if scope == GLOBAL:
        return 2
    return 1 if scope in SHARED_SCOPES else 0
