"""Calls of operators as C++: functions of the language, memory operators of the dialect, TVM's own intrinsics.

In: a `Call` inside an expression or as a statement. Out: expression text; the helpers it needs are noted (`needs`), so that a source
includes only the headers it uses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...errors import InternalError, TileNotSupportedError
from ...ir.dialect import GLOBAL, attr, op_name
from ...ir.tvm_api import Call, Expr, IntImm, TensorRegion, Var, dtype_of, location_of
from .cpp_types import HALF, WHOLE_WARP, c_type, is_float, is_small_float, split
from .expressions import ADD, BIT_AND, BIT_OR, BIT_XOR, PRIMARY, UNARY, Expressions, Text, convert_text

# Function of the language -> (float32, float64) function of CUDA.
_FUNCTIONS = {
    name: (f"{name}f", name)
    for name in (
        "exp", "exp2", "exp10", "log", "log2", "log10", "log1p", "expm1", "sqrt", "rsqrt", "sin", "cos", "tan", "sinh", "cosh", "tanh",
        "asin", "acos", "atan", "asinh", "acosh", "atanh", "erf", "erfc", "floor", "ceil", "trunc", "nearbyint", "pow", "fmod", "atan2",
        "hypot", "copysign", "nextafter", "ldexp", "cbrt", "lgamma", "tgamma", "fdim", "remainder", "fma", "fmin", "fmax",
    )
}  # fmt: skip
_FUNCTIONS |= {"fabs": ("fabsf", "fabs"), "abs": ("fabsf", "fabs"), "round": ("rintf", "rint"), "nearbyint": ("rintf", "rint"),
               "sigmoid": ("tl::sigmoid", "tl::sigmoid"), "exp2": ("tl::exp2", "exp2")}  # fmt: skip
_CLASSES = ("isnan", "isinf", "isfinite")
_BITWISE = {"bitwise_and": ("&", BIT_AND), "bitwise_or": ("|", BIT_OR), "bitwise_xor": ("^", BIT_XOR)}


class Operators:
    """Prints calls with an `Expressions` printer. `needs`: headers used. `definitions`: functions that must stand before the kernel, by
    name. `aligned`: may 16-byte accesses of global memory be assumed to be aligned (else asynchronous copies become plain ones)?"""

    def __init__(self, expressions: Expressions, aligned: bool = True) -> None:
        self.e = expressions
        self.needs: set[str] = set()
        self.definitions: dict[str, str] = {}
        self.aligned = aligned
        self.uses_random = False
        self.uses_grid_barrier = False
        expressions.call = self.print
        self._table: dict[str, Callable[[Call], Text]] = {
            "prim.if_then_else": lambda c: self.e.choice(c.args[0], c.args[1], c.args[2]), "prim.likely": lambda c: self.e.print(c.args[0]),
            "tirx.reinterpret": self._reinterpret, "tirx.address_of": self._address_of, "tirx.buffer_data": self._buffer_data,
            "tirx.tvm_access_ptr": self._access_ptr, "tirx.call_extern": self._extern, "tirx.call_pure_extern": self._extern,
            "tirx.popcount": self._popcount, "prim.clz": self._clz, "tirx.clz": self._clz, "tl.math": self._math,
            "tl.atomic": self._atomic, "tl.shfl": self._shuffle, "tl.vote": self._vote, "tl.block_vote": self._block_vote,
            "tl.warp_reduce": self._warp_reduce, "tl.random": self._random, "tl.any_of": self._any_all, "tl.all_of": self._any_all,
            "tl.gpu_only": self._refuse, "tirx.bitwise_not": lambda c: self.e.invert(c.args[0], dtype_of(c)),
            "tirx.shift_left": lambda c: self.e.shift("<<", c.args[0], c.args[1], dtype_of(c)),
            "tirx.shift_right": lambda c: self.e.shift(">>", c.args[0], c.args[1], dtype_of(c)), "tirx.ptr_to": self._address_of,
        }  # fmt: skip

    def print(self, node: Call) -> Text:
        """Text and precedence of a call."""
        name = op_name(node)
        rule = self._table.get(name)
        if rule is not None:
            return rule(node)
        family, _, function = name.rpartition(".")
        if family in ("tirx", "prim"):
            if function in _BITWISE:
                return self.e.bitwise(*_BITWISE[function], node.args[0], node.args[1], dtype_of(node))
            if function in _FUNCTIONS or function in _CLASSES:
                return self.function(function, list(node.args), dtype_of(node))
        raise self._unknown(name, node)

    def _unknown(self, name: str, node: Call) -> Exception:
        if name.startswith("tl."):
            return InternalError(f"operator {name} is left in the final program: {node}")
        return TileNotSupportedError(f"TVM's operator {name} has no CUDA form", at=location_of(node))

    def _refuse(self, node: Call) -> Text:
        what = str(attr(node, "what", "") or "this operator")
        raise TileNotSupportedError(f"{what} has no CUDA form in this version", at=location_of(node))

    # ---------------------------------------------------------------- functions
    def _math(self, node: Call) -> Text:
        return self.function(str(attr(node, "name")), list(node.args), dtype_of(node))

    def function(self, name: str, args: list[Expr], dtype: str) -> Text:
        """An elementwise function; 16-bit floats and smaller compute in float32 and round once."""
        base, lanes = split(dtype_of(args[0]))
        if lanes > 1:
            return self._vector_function(name, args, dtype)
        texts = [convert_text(self.e.print(a), dtype_of(a), "float32") if _is_narrow(dtype_of(a)) else self.e.print(a) for a in args]
        wide = base == "float64"
        if name in _CLASSES:
            return f"tl::{name}({texts[0][0]})", PRIMARY
        if name == "abs" and not is_float(base):
            return f"tl::abs<{c_type(base)}>({texts[0][0]})", PRIMARY
        if name not in _FUNCTIONS:
            raise TileNotSupportedError(f"the function {name} has no CUDA form", at=location_of(args[0]))
        text = f"{_FUNCTIONS[name][wide]}({', '.join(t[0] for t in texts)})"
        return (f"{c_type(dtype)}({text})", PRIMARY) if _is_narrow(dtype) else (text, PRIMARY)

    def _vector_function(self, name: str, args: list[Expr], dtype: str) -> Text:
        """Lane by lane through a lambda of one or two operands."""
        letters = "ab"[: len(args)]
        if len(letters) != len(args):
            raise TileNotSupportedError(f"the function {name} of {len(args)} vectors", at=location_of(args[0]))
        parameters, values = [], []
        for letter, arg in zip(letters, args, strict=True):
            kind = split(dtype_of(arg))[0]
            parameters.append(f"{c_type(kind)} {letter}")
            values.append(f"(float){letter}" if _is_narrow(kind) else letter)
        result = split(dtype)[0]
        function = f"tl::{name}" if name in _CLASSES else _FUNCTIONS[name][result == "float64"]
        body = f"{function}({', '.join(values)})"
        body = f"{c_type(result)}({body})" if _is_narrow(result) else body
        operands = ", ".join(self.e.text(a) for a in args)
        return f"tl::map<{c_type(result)}>({operands}, []({', '.join(parameters)}) {{ return {body}; }})", PRIMARY

    def _popcount(self, node: Call) -> Text:
        dtype = dtype_of(node.args[0])
        wide = dtype in ("int64", "uint64")
        kind = {"int8": "(uint8_t)", "int16": "(uint16_t)", "int4": "15 & "}.get(dtype, "")
        text = f"{'__popcll' if wide else '__popc'}({kind}{self.e.text(node.args[0], UNARY)})"
        return convert_text((text, PRIMARY), "int32", dtype_of(node))

    def _clz(self, node: Call) -> Text:
        dtype = dtype_of(node.args[0])
        bits = int(dtype.lstrip("uint"))
        text = self.e.text(node.args[0], UNARY)
        if bits < 32:
            unsigned = f"(uint{max(bits, 8)}_t)"
            return f"__clz({'15 & ' if bits == 4 else unsigned}{text}) - {32 - bits}", ADD
        return convert_text((f"{'__clzll' if bits == 64 else '__clz'}({text})", PRIMARY), "int32", dtype_of(node))

    def _reinterpret(self, node: Call) -> Text:
        value, dtype = node.args[0], _type(node)
        source = _type(value)
        text = self.e.text(value)
        if dtype == "handle":
            return f"(void*){self.e.text(value, UNARY)}", UNARY
        if source == "handle":
            return f"({c_type(dtype)}){self.e.text(value, UNARY)}", UNARY
        quick = {("float32", "int32"): "__float_as_int", ("float32", "uint32"): "__float_as_uint", ("int32", "float32"): "__int_as_float",
                 ("uint32", "float32"): "__uint_as_float"}.get((source, dtype))  # fmt: skip
        if quick is not None:
            return f"{quick}({text})", PRIMARY
        return f"tl::bit_cast<{c_type(dtype)}>({text})", PRIMARY

    # ---------------------------------------------------------------- addresses, foreign functions
    def _address_of(self, node: Call) -> Text:
        at = node.args[0]
        text = self.e.address(at.source, at.indices)
        return text, UNARY if text.startswith("&") else ADD

    def region_address(self, region: TensorRegion) -> str:
        """The address of the first element of a region."""
        return self.e.address(region.source, [r.min for r in region.region])

    def region_element(self, region: TensorRegion) -> str:
        return self.e.element(region.source, [r.min for r in region.region])

    def _buffer_data(self, node: Call) -> Text:
        return self.e.print(node.args[0])

    def _access_ptr(self, node: Call) -> Text:
        kind, data, offset = node.args[0], node.args[1], node.args[2]
        dtype = dtype_of(kind)
        pointer = self.e.text(data, UNARY)
        return f"({c_type(dtype)}*){pointer} + {self.e.text(offset, ADD + 1)}", ADD

    def _extern(self, node: Call) -> Text:
        args = []
        for arg in node.args[1:]:
            args.append(self.region_address(arg) if isinstance(arg, TensorRegion) else self.e.text(arg))
        return f"{node.args[0].value}({', '.join(args)})", PRIMARY

    # ---------------------------------------------------------------- atomics
    def _atomic(self, node: Call) -> Text:
        self.needs.add("atomics.cuh")
        place, values = node.args[0], list(node.args[1:])
        kind, dtype = str(attr(node, "kind")), dtype_of(place)
        pointer = self.region_address(place)
        if dtype in ("int4", "uint4") or is_small_float(dtype):
            raise TileNotSupportedError(f"atomic {kind} on {dtype} elements", at=location_of(node), remedy="use a wider element type")
        element = c_type(dtype)
        if len(values) > 1:
            unread = dtype_of(node) == "" and place.source.scope() == GLOBAL  # a statement
            return f"tl::{'' if unread else 'atomic_'}add_pack({pointer}, {', '.join(self.e.text(v) for v in values)})", PRIMARY
        if kind == "load":
            return self._ordered(node, f"tl::atomic_load<{element}>({pointer})"), PRIMARY
        value = self.e.text(values[0])
        return self._ordered(node, f"tl::atomic_{kind}<{element}>({pointer}, {value})"), PRIMARY

    def _ordered(self, node: Call, text: str) -> str:
        """The access between the fences that its memory order asks for."""
        order = str(attr(node, "memory_order", "") or "relaxed")
        before = order in ("release", "acq_rel", "seq_cst")
        after = order in ("acquire", "consume", "acq_rel", "seq_cst")
        if not before and not after:
            return text
        first = "__threadfence(); " if before else ""
        last = " __threadfence();" if after else ""
        return f"[&] {{ {first}const auto seen = {text};{last} return seen; }}()"

    # ---------------------------------------------------------------- warps and blocks
    def _shuffle(self, node: Call) -> Text:
        self.needs.add("warp.cuh")
        value, lane, width, mask = (self.e.text(a) for a in node.args)
        rest = "" if (width, mask) == ("32", WHOLE_WARP) else f", {width}, {mask}"
        return f"tl::shfl_{attr(node, 'mode')}({value}, {lane}{rest})", PRIMARY

    def _vote(self, node: Call) -> Text:
        kind, dtype = str(attr(node, "kind")), dtype_of(node)
        if kind == "activemask":
            return convert_text(("__activemask()", PRIMARY), "uint32", dtype)
        value, mask = self.e.text(node.args[0]), self.e.text(node.args[1])
        if kind == "match_all":
            self.needs.add("warp.cuh")
            return f"tl::match_all({mask}, {value})", PRIMARY
        name = {"any": "__any_sync", "all": "__all_sync", "ballot": "__ballot_sync", "match_any": "__match_any_sync"}[kind]
        return convert_text((f"{name}({mask}, {value})", PRIMARY), "int32" if kind in ("any", "all") else "uint32", dtype)

    def _block_vote(self, node: Call) -> Text:
        name = {"count": "__syncthreads_count", "and": "__syncthreads_and", "or": "__syncthreads_or"}[str(attr(node, "kind"))]
        text = f"{name}({self.e.text(node.args[0])})"
        return (text if attr(node, "kind") == "count" else f"(int)({text} != 0)"), UNARY

    def _warp_reduce(self, node: Call) -> Text:
        self.needs.add("warp.cuh")
        return f"tl::warp_reduce_{attr(node, 'kind')}<{c_type(dtype_of(node))}>({self.e.text(node.args[0])})", PRIMARY

    def _any_all(self, node: Call) -> Text:
        """Every thread looks at all elements of the region."""
        region: TensorRegion = node.args[0]
        wanted = op_name(node) == "tl.any_of"
        loops, indices = [], []
        for k, r in enumerate(region.region):
            var = Var(f"e{k}", "int32")
            name = self.e.names.of(var)
            loops.append(f"for (int {name} = 0; {name} < {self.e.text(r.extent)}; ++{name}) ")
            low = r.min
            indices.append(var if isinstance(low, IntImm) and int(low) == 0 else low + var)
        element = self.e.element(region.source, indices)
        test = convert_text((element, PRIMARY), dtype_of(region), "bool")[0]
        test = test if wanted else f"!({test})"
        found, rest = ("true", "false") if wanted else ("false", "true")
        return f"[&] {{ {''.join(loops)}if ({test}) return {found}; return {rest}; }}()", PRIMARY

    def _random(self, node: Call) -> Text:
        self.needs.add("random.cuh")
        self.uses_random = True
        what = str(attr(node, "what"))
        if what == "uint32":
            return "rng.next()", PRIMARY
        return f"rng.{what}<{c_type(dtype_of(node))}>()", PRIMARY


def _is_narrow(dtype: str) -> bool:
    return dtype in HALF or is_small_float(dtype)


def _type(value: Any) -> str:
    """Element type of a value; pointers are "handle"."""
    dtype = getattr(value.ty, "dtype", None)
    return "handle" if dtype is None or str(dtype).startswith("handle") or type(value.ty).__name__ == "PointerType" else str(dtype)
