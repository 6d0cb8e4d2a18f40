"""Parameter annotations, tensors at addresses, symbolic sizes.

In: shapes, element types, strides as the user writes them. Out: annotation records for parameters (`TensorParam`, ...),
buffers for tensors made in the body, fresh symbolic scalars.
"""

from __future__ import annotations

import re
import warnings
from typing import Any

from ..errors import TileTypeError, TileValueError
from ..ir import builder as builders
from ..ir.annotations import PointerParam, TensorParam, tensor_param
from ..ir.dialect import FRAGMENT, GLOBAL, LOCAL, SCOPES, SHARED_DYN
from ..ir.dtype_table import info
from ..ir.dtypes import canonical
from ..ir.expr import as_value, type_of
from ..ir.tvm_api import DeclBuffer, Expr, IntImm, Var, decl_buffer, is_buffer, tirx


class TensorForm:
    """An annotation such as `T.Tensor`: called or subscripted with a shape and an element type.

    `T.Tensor((M, N), "float16")`, `T.Tensor[(M, N), "float16"]`, `T.Tensor[M, N]` (float32). Extents are ints or symbolic
    integers. Given `data=` of another buffer inside a kernel, it is a view of that buffer instead.
    """

    def __init__(self, name: str, scope: str, deprecated: str = "") -> None:
        self.name, self.scope, self.deprecated = name, scope, deprecated

    def __call__(
        self, shape: Any, dtype: Any = "float32", data: Any = None, strides: Any = None, elem_offset: Any = None, scope: Any = None,
        align: int = 0, offset_factor: int = 0, buffer_type: str = "", axis_separators: Any = None,
    ) -> Any:  # fmt: skip
        """shape: an int, or extents. dtype: element type. strides: in elements, None for row-major. scope: storage scope.

        The fourth positional argument may also be the scope. `align`, `offset_factor`, `buffer_type` and `axis_separators` are
        accepted for old programs and have no effect; an `elem_offset` other than 0 is an error.
        """
        if isinstance(strides, str):
            strides, scope = None, strides
        if elem_offset is not None and not (isinstance(elem_offset, int) and elem_offset == 0):
            raise TileValueError(f"{self.name}: elem_offset={elem_offset}; parameters start at offset 0", remedy="index with the offset")
        if self.deprecated:
            warnings.warn(f"{self.name} is deprecated: use {self.deprecated}", DeprecationWarning, stacklevel=2)
        if data is not None:
            return _alias(self.name, shape, dtype, data, strides, scope)
        return tensor_param(shape, dtype, strides or None, _known_scope(scope, self.name) or self.scope, self.name)

    def __getitem__(self, key: Any) -> TensorParam:
        keys = key if isinstance(key, tuple) else (key,)
        if len(keys) == 2 and isinstance(keys[0], (tuple, list)):
            return tensor_param(keys[0], keys[1], None, self.scope, self.name)
        if len(keys) == 1 and isinstance(keys[0], (tuple, list)):
            return tensor_param(keys[0], "float32", None, self.scope, self.name)
        if len(keys) > 1 and _names_type(keys[-1]):
            return tensor_param(keys[:-1], keys[-1], None, self.scope, self.name)
        return tensor_param(keys, "float32", None, self.scope, self.name)

    def __instancecheck__(self, value: object) -> bool:
        return isinstance(value, Var) and is_buffer(value)

    def __repr__(self) -> str:
        return self.name


class StridedForm:
    """`T.StridedTensor(shape, strides, dtype)`: a global tensor whose elements lie `strides` elements apart."""

    def __call__(self, shape: Any, strides: Any, dtype: Any = "float32", scope: str | None = None) -> TensorParam:
        """shape, strides: equally many ints or symbolic integers; symbolic strides are bound from the actual tensor."""
        return tensor_param(shape, dtype, strides, _known_scope(scope, "T.StridedTensor"), "T.StridedTensor")

    def __getitem__(self, key: Any) -> TensorParam:
        if not isinstance(key, tuple) or len(key) not in (2, 3):
            raise TileTypeError("T.StridedTensor[shape, strides, dtype] needs a shape and strides")
        return self(*key)

    def __repr__(self) -> str:
        return "T.StridedTensor"


Tensor = TensorForm("T.Tensor", GLOBAL)
Buffer = TensorForm("T.Buffer", GLOBAL, deprecated="T.Tensor")
SharedBuffer = TensorForm("T.SharedBuffer", SHARED_DYN)
FragmentBuffer = TensorForm("T.FragmentBuffer", FRAGMENT)
LocalBuffer = TensorForm("T.LocalBuffer", LOCAL)
StridedTensor = StridedForm()


def _names_type(value: Any) -> bool:
    """Is this, in a subscript, an element type rather than an extent?"""
    if isinstance(value, (str, type)) or getattr(value, "is_pointer_marker", False):
        return True
    return type(value).__name__ == "dtype"  # torch and NumPy


def _known_scope(scope: Any, what: str) -> str | None:
    if scope is not None and scope not in SCOPES:
        raise TileValueError(f"{what}: unknown scope {scope!r}", remedy=f"scopes are {', '.join(map(repr, SCOPES))}")
    return scope


# ---------------------------------------------------------------- addresses
def ptr(dtype: Any = None, storage_scope: str = "global", *, is_size_var: bool = False) -> PointerParam:
    """Annotation of a parameter that is a raw device address: `a: T.ptr` or `a: T.ptr("float16")`.

    dtype: what it points to, if known. The caller passes an int (`tensor.data_ptr()`) or a tensor.
    """
    return PointerParam(None if dtype is None else canonical(dtype), storage_scope)


def handle(dtype: Any = None, storage_scope: str = "global", *, is_size_var: bool = False) -> PointerParam:
    """TVM's name of `ptr`."""
    return ptr(dtype, storage_scope)


ptr.is_pointer_marker = True  # type: ignore[attr-defined]
handle.is_pointer_marker = True  # type: ignore[attr-defined]


def make_tensor(ptr: Any, shape: Any, dtype: Any = "float32", strides: Any = None) -> Var:
    """A global tensor at the address `ptr` (a `T.ptr` parameter or an integer address).

    shape: extents in elements. strides: in elements, default row-major. The address must be aligned to the element.
    """
    return _at_address("T.make_tensor", ptr, shape, dtype, strides, GLOBAL)


def make_tensor_from_addr(addr: Any, shape: Any, dtype: Any = "float32", strides: Any = None, storage_scope: str = GLOBAL) -> Var:
    """A tensor at an integer address, e.g. an element of a table of addresses (`T.Tensor(n, T.ptr)`)."""
    return _at_address("T.make_tensor_from_addr", addr, shape, dtype, strides, storage_scope)


def _at_address(what: str, address: Any, shape: Any, dtype: Any, strides: Any, scope: str) -> Var:
    builder = builders.current(what)
    value = as_value(address)
    if isinstance(value, Expr) and info(type_of(value)).is_integer and not isinstance(value, IntImm):
        value = tirx.reinterpret("handle", tirx.Cast("uint64", value) if type_of(value) not in ("int64", "uint64") else value)
    if not isinstance(value, Expr) or type_of(value) != "handle":
        raise TileTypeError(f"{what}: {address!r} is no address", remedy="give a T.ptr parameter or a run-time integer address")
    param = tensor_param(shape, dtype, strides, _known_scope(scope, what), what)
    return _declare(builder, param, value)


def _alias(what: str, shape: Any, dtype: Any, data: Any, strides: Any, scope: Any) -> Var:
    """A view at `data`, which is `other.data` or a buffer."""
    builder = builders.current(f"{what}(data=...)")
    if isinstance(data, Var) and is_buffer(data):
        scope, data = scope or data.scope(), data.data
    if not isinstance(data, Expr) or type_of(data) != "handle":
        raise TileTypeError(f"{what}: data={data!r} is no storage", remedy="give other_buffer.data")
    found = _known_scope(scope, what) or getattr(data.ty, "storage_scope", "") or GLOBAL
    return _declare(builder, tensor_param(shape, dtype, strides or None, str(found), what), data)


def _declare(builder: builders.Builder, param: TensorParam, data: Expr) -> Var:
    buffer = decl_buffer(param.shape, param.dtype.storage, builder.name("tensor"), param.scope, strides=param.strides, span=builder.span())
    builder.emit(DeclBuffer(buffer, builder.span(), data=data))
    return buffer


# ---------------------------------------------------------------- symbolic sizes
def symbolic(name: str, dtype: Any = "int32") -> Any:
    """A fresh symbolic integer, for shapes, strides and grid extents; bound from the actual tensors at the call.

    name: one name gives one variable, several ("m, n" or "m n") a tuple of them. dtype: an integer type.
    """
    kind = canonical(dtype)
    if not isinstance(name, str) or not name.strip():
        raise TileTypeError(f"T.symbolic: {name!r} is no name")
    if not kind.info.is_integer:
        raise TileTypeError(f"T.symbolic: {kind} is no integer type")
    found = tuple(Var(part, kind.storage) for part in re.split(r"[,\s]+", name.strip()) if part)
    return found[0] if len(found) == 1 else found


def dynamic(name: str, dtype: Any = "int32") -> Any:
    """The newer name of `symbolic`."""
    return symbolic(name, dtype)


class _Dyn:
    """`T.dyn["n"]` or `T.dyn["m, n"]`: short for `T.dynamic`."""

    def __getitem__(self, name: str) -> Any:
        return symbolic(name)


dyn = _Dyn()
