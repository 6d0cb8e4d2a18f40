"""Parameters as profilers and tuners see them, and the kinds of generated inputs. Plain records."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from ..ir.dtypes import canonical, dtype
from .signature import SCALAR, TENSOR, Param


class TensorSupplyType(Enum):
    """How inputs are generated; see `get_tensor_supply`."""

    Integer = 1
    Uniform = 2
    Normal = 3
    Randn = 4
    Zero = 5
    One = 6
    Auto = 7


@dataclass(frozen=True)
class KernelParam:
    """A parameter: element type and shape (ints; symbolic extents as their text). A scalar has an empty shape."""

    dtype: dtype
    shape: tuple[Any, ...] = ()
    name: str = field(default="", compare=False)
    kind: str = field(default=TENSOR, compare=False)

    @staticmethod
    def of(param: Param) -> KernelParam:
        return KernelParam(canonical(param.dtype), param.shape, param.name, param.kind)

    def is_scalar(self) -> bool:
        return self.kind == SCALAR or not self.shape

    def is_unsigned(self) -> bool:
        return self.dtype.startswith("uint")

    def is_boolean(self) -> bool:
        return str(self.dtype) == "bool"

    def is_float8(self) -> bool:
        return self.dtype.startswith("float8")

    def torch_dtype(self) -> Any:
        return self.dtype.as_torch()
