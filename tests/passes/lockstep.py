"""A tiny interpreter of THREADS programs: all threads of a block execute one statement after the other, together.

Values are NumPy arrays with one entry for each thread. Barriers are not needed in this order of execution, and shared memory
starts as NaN (or a large integer), so that what a missing store leaves behind is seen.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

from tilelang.ir.dialect import ATTR_WS, attr, op_name
from tilelang.ir.kernel import match_kernel
from tilelang.ir.tvm_api import (
    AllocBuffer,
    AttrStmt,
    Bind,
    BufferStore,
    Call,
    Cast,
    DeclBuffer,
    Evaluate,
    FloatImm,
    For,
    IfThenElse,
    IntImm,
    SeqStmt,
    TensorLoad,
    Var,
    While,
    dtype_of,
    is_buffer,
    tirx,
)  # fmt: skip

_BINARY = {
    tirx.Add: np.add, tirx.Sub: np.subtract, tirx.Mul: np.multiply, tirx.FloorDiv: np.floor_divide, tirx.FloorMod: np.mod,
    tirx.Div: lambda a, b: a / b if a.dtype.kind == "f" else (np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b))).astype(a.dtype),
    tirx.Mod: np.fmod, tirx.Min: np.minimum, tirx.Max: np.maximum, tirx.EQ: np.equal, tirx.NE: np.not_equal, tirx.LT: np.less,
    tirx.LE: np.less_equal, tirx.GT: np.greater, tirx.GE: np.greater_equal, tirx.And: np.logical_and, tirx.Or: np.logical_or,
    tirx.BitwiseAnd: np.bitwise_and, tirx.BitwiseOr: np.bitwise_or, tirx.BitwiseXor: np.bitwise_xor,
    tirx.LShift: np.left_shift, tirx.RShift: np.right_shift,
}  # fmt: skip
_MATH = {
    "exp": np.exp, "exp2": np.exp2, "log": np.log, "log2": np.log2, "sqrt": np.sqrt, "tanh": np.tanh, "fabs": np.abs, "abs": np.abs,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)), "rsqrt": lambda x: 1 / np.sqrt(x), "floor": np.floor, "likely": lambda x: x,
}  # fmt: skip
_ATOMIC = {"add": lambda a, b: a + b, "max": max, "min": min}


def numpy_type(dtype: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, dtype) if dtype.startswith(("bfloat", "float8", "int4", "uint4")) else dtype)


def empty(shape, dtype: str) -> np.ndarray:
    kind = numpy_type(dtype)
    poison = np.nan if dtype.startswith(("float", "bfloat")) else (1 if dtype == "bool" else 99)
    return np.full(shape, poison, kind)


def run(func, *arrays) -> list[np.ndarray]:
    """Execute a function of one kernel; returns copies of the arrays after it."""
    memory = {p: np.array(a) for p, a in zip(func.params, arrays, strict=True)}
    scalars = {p: memory.pop(p) for p in list(memory) if not is_buffer(p)}
    stmts = list(func.body.seq) if isinstance(func.body, SeqStmt) else [func.body]
    for stmt in stmts:
        kernel = match_kernel(stmt)
        blocks = [int(e) if isinstance(e, int) else int(_Block(memory, {**scalars}, 1).value(e)[0]) for _, e in kernel.blocks]
        threads = [e for _, e in kernel.threads]
        count = int(np.prod(threads))
        linear = np.arange(count, dtype=np.int32)
        where = (linear % threads[0], linear // threads[0] % threads[1], linear // (threads[0] * threads[1]))
        for block in np.ndindex(*blocks):
            values = {var: np.int32(k) for (var, _), k in zip(kernel.blocks, block, strict=True)}
            values |= {var: w for (var, _), w in zip(kernel.threads, where, strict=True)}
            _Block(dict(memory), {**scalars, **values}, count).stmt(kernel.body, np.ones(count, dtype=bool))
    return [memory[p] for p in func.params if p in memory]


class _Block:
    def __init__(self, memory, values, count):
        self.memory, self.values, self.count = memory, values, count
        self.private = set()

    # ---- statements
    def stmt(self, node, mask):
        if not mask.any():
            return
        _STATEMENTS[type(node)](self, node, mask)

    def do_SeqStmt(self, node, mask):
        for child in node.seq:
            self.stmt(child, mask)

    def do_AttrStmt(self, node, mask):
        if node.attr_key == ATTR_WS:
            mask = mask & np.isin(np.arange(self.count) // 128, [int(g) for g in node.node])
        self.stmt(node.body, mask)

    def do_DeclBuffer(self, node, mask):
        (source,) = [a for a in node.data.args if a in self.memory]
        shape = tuple(int(e) for e in node.buffer.ty.shape)
        self.memory[node.buffer] = self.memory[source].view(numpy_type(dtype_of(node.buffer))).reshape(shape)

    def do_AllocBuffer(self, node, mask):
        shape = tuple(int(e) for e in node.buffer.ty.shape)
        if node.buffer.scope() in ("local", "local.var"):
            self.private.add(node.buffer)
            shape = (self.count, *shape)
        assert node.buffer.scope() != "local.fragment"
        self.memory[node.buffer] = empty(shape, dtype_of(node.buffer))

    def do_Bind(self, node, mask):
        old = self.values.get(node.var)
        value = self.value(node.value, mask)
        self.values[node.var] = value if old is None or np.ndim(old) == 0 else np.where(mask, value, old)

    def do_BufferStore(self, node, mask):
        value = self.value(node.value, mask)
        at = self.place(node.buffer, node.indices, mask)
        array = self.memory[node.buffer]
        array[tuple(i[mask] for i in at)] = value.astype(array.dtype)[mask]

    def do_Evaluate(self, node, mask):
        self.value(node.value, mask)

    def do_IfThenElse(self, node, mask):
        condition = self.value(node.condition, mask).astype(bool)
        self.stmt(node.then_case, mask & condition)
        if node.else_case is not None:
            self.stmt(node.else_case, mask & ~condition)

    def do_For(self, node, mask):
        assert int(node.kind) != 1, "a PARALLEL loop is left"
        low, extent = self.value(node.min, mask), self.value(node.extent, mask)
        for k in range(int(extent[mask].max())):
            self.values[node.loop_var] = low + low.dtype.type(k)
            self.stmt(node.body, mask & (k < extent))

    def do_While(self, node, mask):
        while (mask := mask & self.value(node.condition, mask).astype(bool)).any():
            self.stmt(node.body, mask)

    # ---- expressions
    def place(self, buffer, indices, mask):
        at = [self.value(i, mask) for i in indices]
        shape = self.memory[buffer].shape
        if buffer in self.private:
            at = [np.arange(self.count), *at]
        for i, extent in zip(at, shape, strict=True):
            assert ((i[mask] >= 0) & (i[mask] < extent)).all(), f"access outside {buffer.name}: {i[mask]} of {extent}"
        return at

    def full(self, value, dtype):
        return np.broadcast_to(np.asarray(value, dtype=numpy_type(dtype)), (self.count,))

    def value(self, node, mask=None):
        mask = np.ones(self.count, dtype=bool) if mask is None else mask
        with np.errstate(all="ignore"):
            dtype = "int32" if isinstance(node, int) else dtype_of(node)
            return self.full(self.compute(node, mask), "int32" if dtype in ("", "void") else dtype)

    def compute(self, node, mask):
        if isinstance(node, int):
            return node
        if isinstance(node, IntImm | FloatImm):
            return node.value
        if isinstance(node, Var):
            return self.values[node]
        if isinstance(node, TensorLoad):
            at = self.place(node.source, node.indices, mask)
            return self.memory[node.source][tuple(np.where(mask, i, 0) for i in at)]
        if isinstance(node, Cast):
            return self.value(node.value, mask).astype(numpy_type(dtype_of(node)))
        if type(node) in _BINARY:
            a, b = self.value(node.a, mask), self.value(node.b, mask)
            if type(node) in (tirx.FloorDiv, tirx.FloorMod, tirx.Div, tirx.Mod) and b.dtype.kind in "iu":
                b = np.where(b == 0, 1, b).astype(b.dtype)
            return _BINARY[type(node)](a, b)
        if isinstance(node, tirx.Not):
            return ~self.value(node.a, mask)
        if isinstance(node, tirx.Select):
            return np.where(self.value(node.condition, mask), self.value(node.true_value, mask), self.value(node.false_value, mask))
        assert isinstance(node, Call), type(node)
        return self.call(node, mask)

    def call(self, node, mask):
        name = op_name(node)
        if name == "prim.if_then_else":
            condition = self.value(node.args[0], mask).astype(bool)
            return np.where(condition, self.value(node.args[1], mask & condition), self.value(node.args[2], mask & ~condition))
        if name == "tl.atomic":
            return self.atomic(node, mask)
        if name in ("tl.sync_threads", "tl.sync_warp", "tl.hint"):
            return 0
        if name == "tirx.reinterpret":
            return self.value(node.args[0], mask).view(numpy_type(dtype_of(node)))
        word = str(attr(node, "name", name.rpartition(".")[2]))
        return _MATH[word](*(self.value(a, mask) for a in node.args))

    def atomic(self, node, mask):
        target, old = node.args[0], np.zeros(self.count, numpy_type(dtype_of(node)))
        at = self.place(target.source, [r.min for r in target.region], mask)
        new = self.value(node.args[1], mask)
        for thread in np.nonzero(mask)[0]:
            where = tuple(i[thread] for i in at)
            old[thread] = self.memory[target.source][where]
            self.memory[target.source][where] = _ATOMIC[str(attr(node, "kind"))](old[thread], new[thread])
        return old


_STATEMENTS = {
    SeqStmt: _Block.do_SeqStmt, AttrStmt: _Block.do_AttrStmt, DeclBuffer: _Block.do_DeclBuffer, AllocBuffer: _Block.do_AllocBuffer,
    Bind: _Block.do_Bind, BufferStore: _Block.do_BufferStore, Evaluate: _Block.do_Evaluate, IfThenElse: _Block.do_IfThenElse,
    For: _Block.do_For, While: _Block.do_While,
}  # fmt: skip
