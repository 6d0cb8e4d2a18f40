"""The only module that knows how this TVM spells things. Everything else imports TVM's names from here.

`apache-tvm` 0.27: dialect `tvm.tirx`; a buffer is a `Var` whose type is `BufferType`; `AllocBuffer`, `DeclBuffer`
and `Bind` are leaf statements whose scope is the rest of the enclosing sequence; there is no statement functor,
traversal is `tvm_ffi.structural_*`. Several constructors kill the process when given None: the helpers check.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import InternalError, Location

if TYPE_CHECKING:
    # TVM builds the fields and constructors of its classes at run time from C++ metadata, invisible to a type checker.
    # It sees classes without known fields instead; a union of them still narrows by isinstance.
    class _Node(Any): ...

    class Expr(_Node): ...

    class Stmt(_Node): ...

    class AllocBuffer(Stmt): ...

    class AssertStmt(Stmt): ...

    class AttrStmt(Stmt): ...

    class Bind(Stmt): ...

    class BufferStore(Stmt): ...

    class DeclBuffer(Stmt): ...

    class Evaluate(Stmt): ...

    class For(Stmt): ...

    class IfThenElse(Stmt): ...

    class SeqStmt(Stmt): ...

    class While(Stmt): ...

    class Call(Expr): ...

    class Cast(Expr): ...

    class FloatImm(Expr): ...

    class IntImm(Expr): ...

    class StringImm(Expr): ...

    class TensorLoad(Expr): ...

    class TensorRegion(Expr): ...

    class Var(Expr): ...

    class Analyzer(_Node): ...

    class ConstIntBound(_Node): ...

    class ModularSet(_Node): ...

    class ForKind(_Node): ...

    class IRModule(_Node): ...

    class IterVar(_Node): ...

    class Op(_Node): ...

    class PrimFunc(_Node): ...

    class Range(_Node): ...

    class SourceName(_Node): ...

    class Span(_Node): ...

    tirx: Any = None
    tvm: Any = None
    tvm_ir: Any = None
    ffi: Any = None
    _ir_ffi: Any = None
    _libinfo: Any = None
    _script: Any = None
    IRBuilder: Any = None
else:
    import tvm
    import tvm.ir._ffi_api as _ir_ffi
    import tvm.tirx.script.builder.ir as _script
    import tvm_ffi as ffi
    from tvm import ir as tvm_ir
    from tvm import tirx
    from tvm.ir import Call, Expr, IRModule, Op, Range, SourceName, Span, StringImm, TensorLoad, TensorRegion, Var
    from tvm.script.ir_builder import IRBuilder
    from tvm.sym import Analyzer, ConstIntBound, ModularSet
    from tvm.tirx import (
        AllocBuffer,
        AssertStmt,
        AttrStmt,
        Bind,
        BufferStore,
        Cast,
        DeclBuffer,
        Evaluate,
        FloatImm,
        For,
        ForKind,
        IfThenElse,
        IntImm,
        IterVar,
        PrimFunc,
        SeqStmt,
        Stmt,
        While,
    )
    from tvm_ffi import libinfo as _libinfo

BufferType, PrimType = tirx.buffer.BufferType, tvm_ir.PrimType


# The classes of TVM's nodes have ABCMeta as metaclass: `isinstance` takes ten times as long as the comparison of types when the answer is
# no. `type(x) is C` says the same for a class without subclasses, and is used where it is asked most.
def is_buffer(value: Any) -> bool:
    """Is it a buffer: a variable whose type is a buffer's?"""
    return type(value) is Var and type(value.ty) is BufferType


# The engines of `tvm_ffi.structural_walk` and its like, taking (type index, callback[, False]) entries. Their Python wrappers look
# into every callback and its types on every call, which takes longer than most of our traversals.
structural_walk, structural_mutate, structural_visit, structural_map = (
    ffi.get_global_func(f"ffi.Structural{name}") for name in ("Walk", "Mutate", "Visit", "Map")
)
_array_item, _array_size = ffi.get_global_func("ffi.ArrayGetItem"), ffi.get_global_func("ffi.ArraySize")
PREORDER, POSTORDER = int(ffi.WalkOrder.PREORDER), int(ffi.WalkOrder.POSTORDER)

__all__ = [
    "POSTORDER", "PREORDER", "AllocBuffer", "Analyzer", "AssertStmt", "AttrStmt", "Bind", "BufferStore", "Call", "Cast", "ConstIntBound",
    "DeclBuffer", "Evaluate", "Expr", "FloatImm", "For", "ForKind", "IRModule", "IfThenElse", "IntImm", "IterVar", "ModularSet", "Op",
    "PrimFunc", "Range", "SeqStmt", "Span", "Stmt", "StringImm", "TensorLoad", "TensorRegion", "Var", "While", "const", "decl_buffer",
    "dtype_of", "effect_of", "ffi", "ffi_function", "in_tvm_script", "is_buffer", "is_expr", "items", "linear_coefficients", "load",
    "location_of", "location_of_span", "make_span", "region", "register_op", "script_alloc", "script_store", "seq", "shape_of",
    "static_shape", "store", "structural_map", "structural_mutate", "structural_visit", "structural_walk", "tirx", "tvm", "tvm_ir",
    "type_indices",
]  # fmt: skip


@functools.lru_cache(maxsize=65536)
def make_span(at: Location) -> Span:
    return Span(SourceName(at.file), at.line, at.end_line or at.line, at.column, at.end_column or at.column)


def location_of(node: Any) -> Location | None:
    """The user's position of a node, or None."""
    return location_of_span(getattr(node, "span", None))


def location_of_span(span: Span | None) -> Location | None:
    """The user's position that a span names, or None."""
    if span is None or not hasattr(span, "source_name"):
        return None
    return Location(span.source_name.name, span.line, span.column, span.end_line, span.end_column)


@functools.cache
def type_indices(types: type[Any] | tuple[type[Any], ...]) -> tuple[int, ...]:
    """TVM's numbers of a node class or of several, for traversals."""
    return tuple(t.__tvm_ffi_type_info__.type_index for t in (types if isinstance(types, tuple) else (types,)))


@functools.cache
def ffi_function(name: str) -> int:
    """The address of a C function of TVM's FFI. Two of c_env_api.h: `void* TVMFFIEnvGetStream(int32_t device_type, int32_t device_id)`
    gives, inside a call of a packed function, the current stream of the library whose tensors are its arguments;
    `int TVMFFIEnvSetStream(int32_t device_type, int32_t device_id, void* stream, void** former)` sets it for this thread."""
    library = ctypes.CDLL(_libinfo.find_libtvm_ffi())
    return int(ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0)


def is_expr(value: Any) -> bool:
    """A device scalar or vector expression (a buffer is not one)."""
    return isinstance(value, Expr) and type(value) is not TensorRegion and not is_buffer(value)


def dtype_of(value: Any) -> str:
    """Element type of a buffer, region or expression, as a string such as "float16" or "int32x4"."""
    if type(value) is TensorRegion:
        value = value.source
    kind = value.ty
    if type(kind) is not PrimType:
        return str(kind.dtype)
    # TVM has one object for each primitive type; to make its name takes longer than most of our callbacks.
    found = _type_names.get(kind.__chandle__())
    if found is None:
        found = _type_names[kind.__chandle__()] = (str(kind.dtype), kind)
    return found[0]


_type_names: dict[int, tuple[str, Any]] = {}  # by the type's address; the type is kept, so that no other object gets it


def items(array: Any) -> list[Any]:
    """The elements of an array of TVM; its own iterator takes three times as long."""
    return [_array_item(array, k) for k in range(_array_size(array))]


def shape_of(buffer: Var) -> tuple[Any, ...]:
    """Extents of a buffer: Python ints where constant, expressions where symbolic."""
    return tuple(e.value if type(e) is IntImm else e for e in items(buffer.ty.shape))


def static_shape(buffer: Var) -> tuple[int, ...]:
    """Extents of a buffer that must be compile-time constants."""
    shape = shape_of(buffer)
    if not all(isinstance(e, int) for e in shape):
        raise InternalError(f"{buffer.name}: symbolic shape {shape} where a constant one is required")
    return shape


def const(value: Any, dtype: str) -> Expr:
    """A constant of exactly this type. Integers wrap into the type; floats keep all their digits."""
    if dtype == "bool":
        return IntImm("bool", int(bool(value)))
    if dtype.startswith(("int", "uint")):
        bits = int(dtype.lstrip("uint"))
        value = int(value) & ((1 << bits) - 1)
        if not dtype.startswith("uint") and value >> (bits - 1):
            value -= 1 << bits
        # IntImm holds a signed 64-bit payload: large uint64 constants are built from their two halves.
        if value < 1 << 63:
            return IntImm(dtype, value)
        return tirx.const(value, dtype)
    return FloatImm(dtype, float(value))


def decl_buffer(
    shape: Sequence[Any], dtype: str, name: str, scope: str = "global", *, strides: Sequence[Any] | None = None,
    data: Expr | None = None, alignment: int = 0, span: Span | None = None,
) -> Var:  # fmt: skip
    """A buffer variable without TVM's layout object. `alignment` in bytes; 0 = the element's own size."""
    if not alignment:
        alignment = max(1, tvm.DataType(dtype).bits // 8) if not dtype.startswith("handle") else 8
    return tirx.decl_buffer(
        tuple(shape), dtype, name=name, scope=scope, strides=strides, data=data, data_alignment=alignment, layout=None, span=span
    )


def load(buffer: Var, indices: Sequence[Any], span: Span | None = None) -> Expr:
    return tirx.BufferLoad(buffer, list(indices), span)


def store(buffer: Var, value: Expr, indices: Sequence[Any], span: Span | None = None) -> Stmt:
    if value is None:
        raise InternalError(f"store of None into {buffer.name}")
    return BufferStore(buffer, value, list(indices), span)


def region(buffer: Var, mins: Sequence[Any], extents: Sequence[Any]) -> TensorRegion:
    """The block of `buffer` that starts at `mins` and has `extents`."""
    return tirx.BufferRegion(buffer, [Range.from_min_extent(m, e) for m, e in zip(mins, extents, strict=True)])


def seq(stmts: Sequence[Stmt]) -> Stmt:
    """A sequence of statements, flat; an empty one is a no-op."""
    flat: list[Stmt] = []
    for stmt in stmts:
        if stmt is None:
            raise InternalError("None in a statement list")
        flat.extend(items(stmt.seq)) if type(stmt) is SeqStmt else flat.append(stmt)
    if not flat:
        return Evaluate(IntImm("int32", 0))
    return flat[0] if len(flat) == 1 else SeqStmt(flat)


def linear_coefficients(expr: Expr, variables: Sequence[Var]) -> tuple[list[int], Expr] | None:
    """Constant factors of the variables in `expr` and the rest without them; None if it is not linear in them."""
    parts = list(tvm.sym.detect_linear_equation(expr, list(variables))) if variables else [expr]
    if len(parts) != len(variables) + 1 or not all(isinstance(c, IntImm) for c in parts[:-1]):
        return None
    return [int(c) for c in parts[:-1]], parts[-1]


# The values of TVM's CallEffectKind; TVM's registration wants the plain number.
EFFECT_PURE, EFFECT_READ, EFFECT_OPAQUE = 1, 2, 3


def register_op(name: str, effect: int) -> Op:
    """The operator `name`, registered with TVM if it is not yet. A second registration would raise there."""
    if name not in _registered_names():
        _ir_ffi.RegisterOp(name, "")
        tvm_ir.register_op_attr(name, "TCallEffectKind", effect)
        tvm_ir.register_op_attr(name, "TScriptPrinterName", name.replace(".", "_"))
        _registered_names().add(name)
    return Op.get(name)


def effect_of(name: str) -> int:
    """TVM's CallEffectKind of the operator `name`; the operators without one are elementwise functions."""
    found = Op.get(name).get_attr("TCallEffectKind")
    return EFFECT_PURE if found is None else int(found)


@functools.cache
def _registered_names() -> set[str]:
    return {str(n) for n in Op.list_op_names()}


def call(op: Op, args: Sequence[Any], dtype: str = "void", attrs: Mapping[str, Any] | None = None, span: Span | None = None) -> Call:
    """A call of one of our operators; `attrs` values may be int, str, bool or lists of them."""
    if any(a is None for a in args):
        raise InternalError(f"None among the operands of {op.name}")
    ty = "void" if dtype == "void" else tvm_ir.PrimType(dtype)
    return Call(op, list(args), attrs=dict(attrs or {}), ret_ty=ty, span=span)


# ---------------------------------------------------------------- functions written in plain TVMScript
def in_tvm_script() -> bool:
    """Is a function of `tvm.script` being parsed (by TVM's own parser) on this thread?"""
    return IRBuilder.is_in_scope()


def script_alloc(shape: Sequence[Any], dtype: str, scope: str, alignment: int, annotations: Mapping[str, Any] | None = None) -> Var:
    """Allocate at this point of the TVMScript function being parsed; its parser gives the buffer the user's name."""
    return _script.alloc_buffer(
        list(shape), dtype, scope=scope, align=alignment, layout=None, annotations=dict(annotations) if annotations else None
    )


def script_store(buffer: Var, value: Expr, indices: Sequence[Any]) -> None:
    _script.buffer_store(buffer, value, list(indices))
