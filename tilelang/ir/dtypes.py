"""The user's element types: `dtype`, a string with facts, which is also callable as a cast.

In: anything that names an element type. Out: `canonical(value) -> dtype`. `T.float16`, `T.int32x4`, ... are objects of
this class; they equal strings, torch, NumPy and Python types of the same meaning, and hash like their name.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ..errors import TileNotSupportedError, TileTypeError
from . import expr
from .dtype_table import TypeInfo, info, numpy_type, resolve
from .tvm_api import Expr, Var


class dtype(str):
    """An element type, e.g. `dtype("float16")`.

    It is a string (its canonical name), so it goes wherever TVM or a program wants a name. Called, it casts:
    `T.float16(x)` is x converted to float16, `T.int32()` a fresh scalar variable (for annotations), and
    `T.float32(a, b)` with two or more arguments a packed vector.
    """

    __slots__ = ()

    def __new__(cls, value: Any) -> dtype:
        return canonical(value)

    @property
    def info(self) -> TypeInfo:
        return info(str(self))

    @property
    def bits(self) -> int:
        """Bits of one lane."""
        return info(str(self)).bits

    @property
    def lanes(self) -> int:
        """Number of elements packed in one value."""
        return info(str(self)).lanes

    @property
    def bytes(self) -> int:
        """Bytes of one value, rounded up."""
        return (self.bits * self.lanes + 7) // 8

    @property
    def itemsize(self) -> int:
        """Same as `bytes`, under NumPy's name."""
        return self.bytes

    @property
    def storage(self) -> str:
        """The type TVM stores this one as: tfloat32 lives in float32."""
        if self.startswith("float4_e2m1_unpacked"):
            raise TileNotSupportedError(
                "element type float4_e2m1_unpacked exists on Blackwell GPUs only", remedy="use float4_e2m1fn (two elements in a byte)"
            )
        return str(self).replace("tfloat32", "float32")

    def as_numpy(self) -> np.dtype:
        """NumPy's type of one lane (ml_dtypes for those NumPy lacks)."""
        base = info(str(self)).base
        if base == "handle":
            return np.dtype(np.uint64)
        found = numpy_type(base)
        if found is None:
            raise TileTypeError(f"NumPy has no element type for {self}")
        return np.dtype(found)

    def as_torch(self) -> Any:
        """torch's type of one lane."""
        import torch  # noqa: PLC0415

        base = {"tfloat32": "float32", "float4_e2m1fn": "float4_e2m1fn_x2"}.get(info(str(self)).base, info(str(self)).base)
        found = getattr(torch, base, None)
        if not isinstance(found, torch.dtype):
            raise TileTypeError(f"torch has no element type for {self}")
        return found

    def __call__(self, *values: Any) -> Expr:
        """No argument: a fresh scalar variable. One: the value converted to this type. More: a packed vector."""
        if not values:
            return Var("v", self.storage)
        if len(values) == 1:
            return expr.convert(values[0], self.storage)
        return expr.vector([expr.convert(v, info(self.storage).base) for v in values])

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str) and str.__eq__(self, other):
            return True
        return _meaning(other) == str(self)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__

    def __repr__(self) -> str:
        return f"T.{self!s}" if self.isidentifier() else f"T.dtype({str(self)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return canonical, (str(self),)


def _meaning(value: object) -> str | None:
    """Canonical name of a value that names an element type, None for all others."""
    try:
        return resolve(value)
    except (TileTypeError, TypeError):
        return None


@functools.cache
def _interned(name: str) -> dtype:
    return str.__new__(dtype, name)


def canonical(value: Any) -> dtype:
    """The element type named by a string, torch, NumPy, ml_dtypes, Python or TVM type; else `TileTypeError`."""
    return value if type(value) is dtype else _interned(resolve(value))
