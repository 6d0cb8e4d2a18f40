"""`import tilelang.tvm as tvm` / `from tilelang import tvm`: TVM's names, with `tir` as programs know it.

Everything is TVM's own object; TVM itself is not changed. `tir` adds to the contents of `tvm.tirx` the names that moved elsewhere.
"""

from __future__ import annotations

import types
from typing import Any

from .ir.tvm_api import Call, Expr, IntImm, StringImm, Var, is_buffer
from .ir.tvm_api import tirx as _tirx
from .ir.tvm_api import tvm as _tvm


class _BufferClass(type):
    """`isinstance(x, tir.Buffer)` is true for buffers only; TVM's own `Buffer` is the class of all variables."""

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, Var) and is_buffer(value)


class _Buffer(metaclass=_BufferClass):
    """A buffer variable, for `isinstance`."""


class _Tir(types.ModuleType):
    """`tvm.tirx` under its older name."""

    PrimExpr = Expr
    Buffer = _Buffer
    Call = Call
    IntImm = IntImm
    StringImm = StringImm
    Var = Var

    def __getattr__(self, name: str) -> Any:
        return getattr(_tirx, name)


class _Te(types.ModuleType):
    """The one name of `tvm.te` that programs use."""

    @staticmethod
    def var(name: str = "tindex", dtype: str = "int32") -> Var:
        """A symbolic scalar."""
        return Var(name, dtype)


tir = _Tir("tilelang.tvm.tir")
te = _Te("tilelang.tvm.te")


def __getattr__(name: str) -> Any:
    return getattr(_tvm, name)
