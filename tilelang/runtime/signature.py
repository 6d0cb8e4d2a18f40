"""What a caller must know about a program: its parameters, their symbolic shapes, who is written, what is returned.

In: a `PrimFunc`. Out: a `Signature` of plain Python values.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import TileValueError
from ..ir.dialect import op_info, op_name
from ..ir.rewrite import walk
from ..ir.tvm_api import BufferStore, Call, DeclBuffer, IntImm, PrimFunc, TensorLoad, TensorRegion, Var, dtype_of, is_buffer, tirx

# An extent: a constant, the name of a symbol, or (operator, operands...) over extents.
Dim = Any

TENSOR, SCALAR, POINTER = "tensor", "scalar", "pointer"

_BINARY: dict[str, Callable[[int, int], int]] = {
    "Add": operator.add, "Sub": operator.sub, "Mul": operator.mul, "FloorDiv": operator.floordiv, "FloorMod": operator.mod,
    "Div": lambda a, b: int(a / b), "Mod": lambda a, b: a - b * int(a / b), "Min": min, "Max": max,
}  # fmt: skip
_SIGNS = {"Add": "+", "Sub": "-", "Mul": "*", "FloorDiv": "//", "FloorMod": "%", "Div": "/", "Mod": "%"}


@dataclass(frozen=True)
class Param:
    """One parameter in order. kind: tensor, scalar or pointer. shape and strides are extents in elements; strides None
    means row-major and contiguous. written/used: does the program store to it / mention it at all?"""

    name: str
    kind: str
    dtype: str
    shape: tuple[Dim, ...] = ()
    strides: tuple[Dim, ...] | None = None
    written: bool = False
    used: bool = True

    def __str__(self) -> str:
        if self.kind != TENSOR:
            return f"{self.name}: {self.dtype if self.kind == SCALAR else 'pointer'}"
        return f"{self.name}: {self.dtype}{show_shape(self.shape)}"


@dataclass(frozen=True)
class Signature:
    """name of the program, its parameters, and the positions of those that the launcher allocates and returns. narrow: the
    symbols of 32 bits; an extent that one of them stands for is at most `LARGEST_SIZE`."""

    name: str
    params: tuple[Param, ...]
    out_idx: tuple[int, ...] = ()
    narrow: frozenset[str] = frozenset()

    @property
    def inputs(self) -> tuple[int, ...]:
        """Positions that the caller passes."""
        return tuple(k for k in range(len(self.params)) if k not in self.out_idx)

    def __str__(self) -> str:
        return f"{self.name}({', '.join(str(self.params[k]) for k in self.inputs)})"


def show_dim(dim: Dim) -> str:
    if not isinstance(dim, tuple):
        return str(dim)
    name, *operands = dim
    shown = [show_dim(d) for d in operands]
    return f"({shown[0]} {_SIGNS[name]} {shown[1]})" if name in _SIGNS else f"{name.lower()}({', '.join(shown)})"


def show_shape(shape: tuple[Dim, ...]) -> str:
    """An extent list as Python writes it, symbols by name: "(n, 16)"."""
    return f"({', '.join(show_dim(d) for d in shape)}{',' if len(shape) == 1 else ''})"


def symbols(dim: Dim) -> Iterator[str]:
    if isinstance(dim, str):
        yield dim
    elif isinstance(dim, tuple):
        for operand in dim[1:]:
            yield from symbols(operand)


def evaluate(dim: Dim, values: Mapping[str, int]) -> int:
    """The value of an extent; KeyError with the name of a symbol that has none."""
    if isinstance(dim, int):
        return dim
    if isinstance(dim, str):
        return values[dim]
    return int(_BINARY[dim[0]](evaluate(dim[1], values), evaluate(dim[2], values)))


# ---------------------------------------------------------------- from a program
def signature_of(func: PrimFunc, out_idx: Any = None) -> Signature:
    """The signature of a program. out_idx: None, or an int or list of ints (negative counts from the end) naming
    parameters that the launcher allocates and returns; a program with `T.empty` outputs brings its own."""
    attrs = func.attrs or {}
    own = attrs["tl.out_idx"] if "tl.out_idx" in attrs else None
    if own is not None and out_idx is not None:
        raise TileValueError(
            f"out_idx={out_idx!r} for a program that returns its own outputs", remedy="drop out_idx: tensors made by T.empty are returned"
        )
    chosen = [int(k) for k in own] if own is not None else out_idx
    names = _Names()
    written, used = _effects(func)
    params = []
    for var in func.params:
        if is_buffer(var):
            strides = tuple(names.dim(s) for s in var.ty.strides) if len(var.ty.strides) else None
            shape = tuple(names.dim(e) for e in var.ty.shape)
            params.append(Param(names.of(var), TENSOR, dtype_of(var), shape, strides, var in written, var in used))
        else:
            dtype = str(getattr(var.ty, "dtype", "handle"))
            kind = POINTER if dtype == "handle" else SCALAR
            params.append(Param(names.of(var), kind, dtype, written=var in written, used=var in used))
    name = str(attrs["global_symbol"]) if "global_symbol" in attrs else "main"
    signature = Signature(name, tuple(params), normalise_out_idx(chosen, params), _narrow(func, names))
    _check_outputs(signature)
    return signature


def normalise_out_idx(out_idx: Any, params: list[Param]) -> tuple[int, ...]:
    """Positions from an int or a list of ints, in the caller's order, counted from the start."""
    if out_idx is None:
        return ()
    wanted = [out_idx] if isinstance(out_idx, int) else list(out_idx)
    count, result = len(params), []
    for k in wanted:
        if isinstance(k, bool) or not hasattr(k, "__index__"):
            raise TileValueError(f"out_idx={out_idx!r}: {k!r} is not a position", remedy="use ints such as out_idx=[-1]")
        position = int(k) + count if int(k) < 0 else int(k)
        if not 0 <= position < count:
            raise TileValueError(f"out_idx={out_idx!r}: there is no parameter {k}; the program has {count} parameters")
        if params[position].kind != TENSOR:
            raise TileValueError(f"out_idx={out_idx!r}: parameter {k} ({params[position]}) is not a tensor and cannot be allocated")
        if position in result:
            raise TileValueError(f"out_idx={out_idx!r} names parameter {params[position].name} twice")
        result.append(position)
    return tuple(result)


def _check_outputs(signature: Signature) -> None:
    known = {s for k in signature.inputs for d in _extents(signature.params[k]) for s in symbols(d)}
    known |= {signature.params[k].name for k in signature.inputs if signature.params[k].kind == SCALAR}
    for k in signature.out_idx:
        for dim in signature.params[k].shape:
            missing = [s for s in symbols(dim) if s not in known]
            if missing:
                raise TileValueError(
                    f"the size of output {signature.params[k]} depends on {missing[0]}, which no argument determines",
                    remedy="pass that tensor instead of naming it in out_idx, or make its size depend on inputs",
                )


def _extents(param: Param) -> Iterator[Dim]:
    yield from param.shape
    yield from param.strides or ()


class _Names:
    """A unique name for each variable: two symbols may be called the same."""

    def __init__(self) -> None:
        self._of: dict[Var, str] = {}

    def of(self, var: Var) -> str:
        if var not in self._of:
            taken, name, count = set(self._of.values()), var.name, 0
            while name in taken:
                count += 1
                name = f"{var.name}_{count}"
            self._of[var] = name
        return self._of[var]

    def dim(self, expr: Any) -> Dim:
        if isinstance(expr, int | IntImm):
            return int(expr)
        if isinstance(expr, Var):
            return self.of(expr)
        if isinstance(expr, tirx.Cast):
            return self.dim(expr.value)
        name = type(expr).__name__
        if name not in _BINARY:
            raise TileValueError(f"extent {expr} in a parameter", remedy="use + - * // % min max of symbols and constants")
        return (name, self.dim(expr.a), self.dim(expr.b))


def _narrow(func: PrimFunc, names: _Names) -> frozenset[str]:
    """Symbols of 32 bits in shapes and strides (a scalar parameter has its own check)."""
    found: set[Var] = set()
    for var in func.params:
        if is_buffer(var):
            for extent in (*var.ty.shape, *var.ty.strides):
                walk(extent, {Var: lambda v: found.add(v) if dtype_of(v) == "int32" and v not in func.params else None})
    return frozenset(names.of(v) for v in found)


def _effects(func: PrimFunc) -> tuple[set[Var], set[Var]]:
    """(written, used) variables. A buffer whose address is taken counts as written; a view passes its effects on."""
    written: set[Var] = set()
    used: set[Var] = set()
    addressed: dict[Var, int] = {}  # times that `buffer.data` occurs
    views: list[tuple[Var, Var]] = []

    def visit_call(call: Call) -> None:
        entry = op_info(call)
        if entry is not None:
            roles = list(entry.roles)
            for k, arg in enumerate(call.args):
                role = roles[min(k, len(roles) - 1)] if roles else "v"
                if isinstance(arg, TensorRegion) and role[0] in "wu":
                    written.add(arg.source)
        elif op_name(call) == "tirx.buffer_data":
            addressed[call.args[0]] = addressed.get(call.args[0], 0) + 1
        elif op_name(call) == "tirx.address_of" and isinstance(call.args[0], TensorLoad):
            written.add(call.args[0].source)

    def visit_view(decl: DeclBuffer) -> None:
        if op_name(decl.data) == "tirx.buffer_data":
            source = decl.data.args[0]
            views.append((decl.buffer, source))
            addressed[source] = addressed.get(source, 0) - 1
        elif isinstance(decl.data, Var):  # a tensor made from a pointer
            views.append((decl.buffer, decl.data))

    walk(func.body, {DeclBuffer: visit_view})
    walk(func.body, {
        BufferStore: lambda s: written.add(s.buffer), Call: visit_call, Var: used.add,
        TensorLoad: lambda e: used.add(e.source), TensorRegion: lambda e: used.add(e.source),
    })  # fmt: skip
    written |= {buffer for buffer, count in addressed.items() if count > 0}
    for view, source in reversed(views):
        if view in written:
            written.add(source)
    return written, used | written | set(addressed)
