"""The host part of a program as the text of a Python function.

In: a `PrimFunc` with kernel regions. Out: `call(parameters)`: checks the arguments, binds symbolic extents, computes grids and launches
the kernels in order. The text needs nothing but the names that `launch.py` puts into its namespace, so that it can be kept in a cache.

A check that fails raises `Refused`; the runtime then looks for the reason and tells the user.
"""

# ruff: noqa: SIM905
from __future__ import annotations

import keyword
from collections.abc import Callable, Collection, Sequence
from typing import Any

from ...errors import InternalError, TileNotSupportedError
from ...ir.dialect import GLOBAL, op_name
from ...ir.dtype_table import FLOATS, INTEGERS
from ...ir.kernel import match_kernel
from ...ir.tvm_api import (
    AllocBuffer,
    AssertStmt,
    AttrStmt,
    Bind,
    BufferStore,
    Call,
    Cast,
    DeclBuffer,
    Evaluate,
    Expr,
    FloatImm,
    For,
    IfThenElse,
    IntImm,
    PrimFunc,
    SeqStmt,
    Stmt,
    StringImm,
    TensorLoad,
    Var,
    While,
    dtype_of,
    is_buffer,
    location_of,
    shape_of,
    tirx,
)  # fmt: skip
from .cpp_types import bytes_of, is_float

_BINARY = {tirx.Add: "+", tirx.Sub: "-", tirx.Mul: "*", tirx.EQ: "==", tirx.NE: "!=", tirx.LT: "<", tirx.LE: "<=", tirx.GT: ">",
           tirx.GE: ">=", tirx.And: "and", tirx.Or: "or", tirx.BitwiseAnd: "&", tirx.BitwiseOr: "|", tirx.BitwiseXor: "^",
           tirx.LShift: "<<", tirx.RShift: ">>"}  # fmt: skip
_FUNCTION = {tirx.FloorDiv: "floor_div", tirx.FloorMod: "floor_mod", tirx.Mod: "trunc_mod", tirx.Min: "min", tirx.Max: "max"}
# Names of the namespace in which the text runs.
RESERVED = frozenset(
    "call Refused kernels fast slow load workspace current_stream floor_div floor_mod trunc_div trunc_mod min max int float bool device "
    "stream careful grad_enabled solve fail address current_device range".split()
) | {*FLOATS, *INTEGERS, "handle"}


class HostNames:
    """Python names of host variables."""

    def __init__(self) -> None:
        self._of: dict[Var, str] = {}
        self._used: set[str] = set(RESERVED)

    def of(self, var: Var) -> str:
        if var not in self._of:
            self._of[var] = self.fresh(str(var.name))
        return self._of[var]

    def fresh(self, wanted: str) -> str:
        base = wanted if wanted.isidentifier() and not keyword.iskeyword(wanted) and not wanted.startswith("__") else "v"
        name, count = base, 0
        while name in self._used:
            count += 1
            name = f"{base}_{count}"
        self._used.add(name)
        return name

    def known(self, var: Var) -> bool:
        return var in self._of


class HostText:
    """Writes the function. `arguments`: for each kernel region, in order, the variables it takes. `written`: tensors that the
    program writes."""

    def __init__(self, func: PrimFunc, arguments: Sequence[Sequence[Var]], written: Collection[Var]) -> None:
        self.func, self.arguments, self.written = func, list(arguments), written
        self.names = HostNames()
        self.lines: list[str] = []
        self.depth = 1
        self.next_kernel = 0
        self.pointers: dict[Var, str] = {}  # buffer -> Python name of its address
        self.cells: set[Var] = set()  # variables of the host, kept as lists of one

    def text(self) -> str:
        """The whole function."""
        parameters = [self.names.of(p) for p in self.func.params]
        self._check_parameters()
        self._statement(self.func.body)
        if self.lines and self.lines[-1].endswith(":"):
            self.line("pass")
        return "\n".join([f"def call({', '.join(parameters)}):", *(self.lines or ["    pass"])]) + "\n"

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    # ---------------------------------------------------------------- parameters
    def _check_parameters(self) -> None:
        used = {v for taken in self.arguments for v in taken}
        tensors = [p for p in self.func.params if is_buffer(p)]
        for p in self.func.params:
            if not is_buffer(p) and not hasattr(p.ty, "dtype"):
                self.line(f"{self.names.of(p)} = address({self.names.of(p)})")
        compound: list[tuple[Expr, str]] = []
        bound: set[Var] = {p for p in self.func.params if not is_buffer(p)}
        known_device = False
        for p in tensors:
            name, shown = self.names.of(p), str(p.name)
            tests = [f"{name}.dtype is not {dtype_of(p)}", f"{name}.is_neg()"]
            if p in self.written:
                tests.append(f"{name}.requires_grad and grad_enabled()")
            if not len(p.ty.strides):
                tests.append(f"not {name}.is_contiguous()")
            shape = self._shape(p, name, tests, bound, compound)
            if p in used:
                if known_device:
                    tests.append(f"{name}.get_device() != device")
                else:
                    self.line(f"device = {name}.get_device()")
                    tests.append("device < 0")
                known_device = True
            self.line(f"if {' or '.join(tests)}: raise Refused({shown!r})")
            if len(p.ty.strides):
                self._strides(p, name, shape, bound, compound)
            self.pointers[p] = self.names.fresh(f"p_{name}")
            self.line(f"{self.pointers[p]} = {name}.data_ptr()")
        for expr, actual in compound:
            self._compound(expr, actual, bound)
        if not known_device:
            self.line("device = current_device()")
        self.line("stream = current_stream(device)")
        self._careful([p for p in tensors if p in used])

    def _shape(self, p: Var, name: str, tests: list[str], bound: set[Var], compound: list[tuple[Expr, str]]) -> str:
        """Binds new symbols among the extents, adds the tests of the others; the name that the shape gets, "" for none."""
        extents = shape_of(p)
        if all(isinstance(e, int) for e in extents) and not len(p.ty.strides):
            tests.append(f"{name}.shape != {tuple(extents)}")
            return ""
        shape = self.names.fresh(f"shape_{name}")
        parts = []
        for axis, extent in enumerate(extents):
            part = self.names.fresh(f"{name}_{axis}")
            if isinstance(extent, Var) and extent not in bound:
                bound.add(extent)
                part = self.names.of(extent)
            elif isinstance(extent, int | Var):
                tests.append(f"{part} != {extent if isinstance(extent, int) else self.names.of(extent)}")
            else:
                compound.append((extent, part))
            parts.append(part)
        self.line(f"{shape} = {name}.shape")
        self.line(f"if len({shape}) != {len(extents)}: raise Refused({str(p.name)!r})")
        if parts:
            self.line(f"{', '.join(parts)}, = {shape}")
        return shape

    def _strides(self, p: Var, name: str, shape: str, bound: set[Var], compound: list[tuple[Expr, str]]) -> None:
        strides = self.names.fresh(f"strides_{name}")
        self.line(f"{strides} = {name}.stride()")
        for axis, stride in enumerate(p.ty.strides):
            if isinstance(stride, Var) and stride not in bound:
                bound.add(stride)
                self.line(f"{self.names.of(stride)} = {strides}[{axis}]")
            elif isinstance(stride, IntImm | Var):
                wanted = str(int(stride)) if isinstance(stride, IntImm) else self.names.of(stride)
                self.line(f"if {strides}[{axis}] != {wanted} and {shape}[{axis}] > 1 and 0 not in {shape}: raise Refused({str(p.name)!r})")
            else:
                compound.append((stride, f"{strides}[{axis}]"))

    def _compound(self, expr: Expr, actual: str, bound: set[Var]) -> None:
        """An extent such as 2 * n + 1: gives the only symbol that is not known yet, or is compared."""
        unknown = [v for v in _variables(expr) if v not in bound]
        if len(unknown) == 1:
            name = self.names.of(unknown[0])
            self.line(f"{name} = solve(lambda {name}: {self.expr(expr)}, {actual})")
            bound.add(unknown[0])
        if len(unknown) <= 1:
            self.line(f"if {actual} != {self.expr(expr)}: raise Refused()")

    def _careful(self, tensors: list[Var]) -> None:
        """Do the tensors break what the fast kernels assume: 16-byte alignment, and no memory under two names?"""
        addresses = [self.pointers[p] for p in tensors]
        written = [self.pointers[p] for p in tensors if p in self.written]
        pairs = [f"{w} == {a}" for k, w in enumerate(written) for a in addresses if a != w and a not in written[:k]]
        tests = [f"({' | '.join(addresses)}) & 15", *pairs] if addresses else ["False"]
        if len(pairs) > len(addresses):
            tests = [tests[0], f"len({{{', '.join(addresses)}}}) != {len(addresses)}"]
        self.line(f"careful = {' or '.join(tests)}")
        self.line("kernels = slow.get(device) or load(device, True) if careful else fast.get(device) or load(device, False)")

    # ---------------------------------------------------------------- statements
    def _statement(self, node: Stmt) -> None:
        region = match_kernel(node)
        if region is not None:
            self._launch(region)
            return
        rule = self._rules().get(type(node))
        if rule is None:
            raise InternalError(f"no host form of {type(node).__name__}: {node}")
        rule(node)

    def _rules(self) -> dict[type, Callable[[Any], Any]]:
        return {
            SeqStmt: lambda s: [self._statement(x) for x in s.seq], AttrStmt: lambda s: self._statement(s.body), Bind: self._bind,
            AllocBuffer: self._alloc, DeclBuffer: self._view, BufferStore: self._store, Evaluate: self._evaluate, For: self._for,
            IfThenElse: self._if, While: self._while, AssertStmt: self._assert,
        }  # fmt: skip

    def _launch(self, region: Any) -> None:
        taken = self.arguments[self.next_kernel]
        grid, tests = [], []
        for _, extent in region.blocks:
            text = str(extent) if isinstance(extent, int) else self.expr(extent)
            if not isinstance(extent, int) and not isinstance(extent, Var):
                name = self.names.fresh(f"grid_{'xyz'[len(grid)]}")
                self.line(f"{name} = {text}")
                text = name
            if not (isinstance(extent, int) and extent > 0):
                tests.append(f"{text} > 0")
            grid.append(text)
        grid += ["1"] * (3 - len(grid))
        values = [self.pointers[v] if is_buffer(v) else self.names.of(v) for v in taken]
        guard = f"if {' and '.join(tests)}: " if tests else ""
        self.line(f"{guard}kernels[{self.next_kernel}]({', '.join([*grid, 'stream', *values])})")
        self.next_kernel += 1

    def _bind(self, node: Any) -> None:
        self.line(f"{self.names.of(node.var)} = {self.expr(node.value)}")

    def _alloc(self, node: Any) -> None:
        buffer = node.buffer
        name = self.names.of(buffer)
        if buffer.scope() != GLOBAL:
            self.cells.add(buffer)
            self.line(f"{name} = [0]")
            return
        count = " * ".join(str(e) if isinstance(e, int) else self.expr(e) for e in shape_of(buffer)) or "1"
        self.pointers[buffer] = self.names.fresh(f"p_{name}")
        self.line(f"{name} = workspace({count} * {bytes_of(dtype_of(buffer))}, device, stream)")
        self.line(f"{self.pointers[buffer]} = {name}.data_ptr()")

    def _view(self, node: Any) -> None:
        self.pointers[node.buffer] = self.names.fresh(f"p_{node.buffer.name}")
        self.line(f"{self.pointers[node.buffer]} = {self.expr(node.data)}")

    def _store(self, node: Any) -> None:
        if node.buffer not in self.cells:
            raise self._device_memory(node)
        self.line(f"{self.names.of(node.buffer)}[0] = {self.expr(node.value)}")

    def _device_memory(self, node: Any) -> Exception:
        return TileNotSupportedError(
            "an element of a tensor outside `with T.Kernel(...)`: its memory is on the device", at=location_of(node),
            remedy="read or write it in a kernel",
        )  # fmt: skip

    def _evaluate(self, node: Any) -> None:
        if not isinstance(node.value, IntImm) and op_name(node.value) != "tl.hint":
            raise TileNotSupportedError(f"{node.value} outside a kernel", at=location_of(node))

    def _body(self, head: str, body: Stmt) -> None:
        self.line(head)
        self.depth += 1
        before = len(self.lines)
        self._statement(body)
        if len(self.lines) == before:
            self.line("pass")
        self.depth -= 1

    def _for(self, node: Any) -> None:
        low, extent = self.expr(node.min), self.expr(node.extent)
        end = extent if low == "0" else f"{low} + {extent}"
        self._body(f"for {self.names.of(node.loop_var)} in range({low}, {end}):", node.body)

    def _if(self, node: Any) -> None:
        self._body(f"if {self.expr(node.condition)}:", node.then_case)
        if node.else_case is not None:
            self._body("else:", node.else_case)

    def _while(self, node: Any) -> None:
        self._body(f"while {self.expr(node.condition)}:", node.body)

    def _assert(self, node: Any) -> None:
        parts = getattr(node, "message_parts", None) or [getattr(node, "message", "")]
        message = "".join(str(p.value) if isinstance(p, StringImm) else str(p) for p in parts)
        self.line(f"if not ({self.expr(node.condition)}): fail({message!r})")

    # ---------------------------------------------------------------- expressions
    def expr(self, node: Any) -> str:
        """A host expression as Python."""
        kind = type(node)
        if isinstance(node, int):
            return str(node)
        if kind is IntImm:
            return str(bool(int(node))) if dtype_of(node) == "bool" else str(int(node))
        if kind is FloatImm:
            return f"float({str(float(node.value))!r})"
        if isinstance(node, Var):
            return self.pointers[node] if is_buffer(node) else self.names.of(node)
        if kind in _BINARY:
            return f"({self.expr(node.a)} {_BINARY[kind]} {self.expr(node.b)})"
        if kind in (tirx.FloorDiv, tirx.FloorMod) and isinstance(node.b, IntImm) and int(node.b) > 0:
            return f"({self.expr(node.a)} {'//' if kind is tirx.FloorDiv else '%'} {int(node.b)})"
        if kind in _FUNCTION:
            return f"{_FUNCTION[kind]}({self.expr(node.a)}, {self.expr(node.b)})"
        return self._other(node)

    def _other(self, node: Any) -> str:
        if isinstance(node, tirx.Div):
            a, b = self.expr(node.a), self.expr(node.b)
            return f"({a} / {b})" if is_float(dtype_of(node)) else f"trunc_div({a}, {b})"
        if isinstance(node, Cast):
            value = self.expr(node.value)
            return f"({value} != 0)" if dtype_of(node) == "bool" else f"{'float' if is_float(dtype_of(node)) else 'int'}({value})"
        if isinstance(node, tirx.Not):
            return f"(not {self.expr(node.a)})"
        if isinstance(node, tirx.Select):
            return f"({self.expr(node.true_value)} if {self.expr(node.condition)} else {self.expr(node.false_value)})"
        if isinstance(node, TensorLoad):
            if node.source not in self.cells:
                raise self._device_memory(node)
            return f"{self.names.of(node.source)}[0]"
        if isinstance(node, Call):
            return self._call(node)
        raise TileNotSupportedError(f"{node} outside a kernel", at=location_of(node))

    def _call(self, node: Call) -> str:
        name = op_name(node)
        if name.endswith(".if_then_else"):
            return f"({self.expr(node.args[1])} if {self.expr(node.args[0])} else {self.expr(node.args[2])})"
        if name in ("tirx.reinterpret", "tirx.buffer_data", "prim.likely"):
            return self.expr(node.args[0])
        raise TileNotSupportedError(f"{name} outside a kernel", at=location_of(node))


def _variables(expr: Expr) -> list[Var]:
    from_expr: dict[Var, None] = {}

    def visit(node: Any) -> None:
        if isinstance(node, Var):
            from_expr.setdefault(node)
        for part in ("a", "b", "value"):
            child = getattr(node, part, None)
            if isinstance(child, Expr):
                visit(child)

    visit(expr)
    return list(from_expr)
