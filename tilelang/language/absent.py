"""Names of the wider language that this package does not have, each with what to use instead.

In: a name that a program asks for. Out: a function that raises TileNotSupportedError when it is called (looking the name up
is no error, so that modules that mention it can be imported).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from ..errors import TileNotSupportedError

_KERNEL = "open the kernel by T.Kernel(..., threads=...) and ask for indices by T.get_thread_binding and its kin"
_BUFFER = "use T.alloc_buffer, T.Tensor parameters and T.view"
_BIND = "assign a name: x = value"
_CALL = "call a C function by T.call_extern"
_METAL = "it exists on Metal only; use T.gemm"
_SCHEDULE = "write the roles by T.ws, or leave them to the compiler"
ABSENT = {
    "launch_thread": _KERNEL, "env_thread": _KERNEL, "decl_buffer": _BUFFER, "match_buffer": _BUFFER, "allocate": _BUFFER,
    "allocate_const": _BUFFER, "buffer_store": "write buffer[i] = value", "buffer_load": "write buffer[i]", "LetStmt": _BIND, "Let": _BIND,
    "let": _BIND, "call_packed": _CALL, "call_cpacked": _CALL, "tvm_call_packed": _CALL, "tvm_call_cpacked": _CALL, "tvm_struct_get": _CALL,
    "tvm_struct_set": _CALL, "vscale": "vectors have constant lengths", "target": "give the target to tilelang.compile",
    "meta_class": "use an ordinary Python class", "inline": "use T.macro", "BaseTileScheduler": "use T.PersistentTileScheduler",
    "CUDASourceCodeKernel": "import device functions by T.import_source and call them by T.call_extern",
    "simdgroup_load": _METAL, "simdgroup_store": _METAL, "simdgroup_multiply_accumulate": _METAL, "make_filled_simdgroup_matrix": _METAL,
    "cooperative_tensor_load": _METAL, "cooperative_tensor_store": _METAL, "cooperative_tensor_multiply_accumulate": _METAL,
    "ds_read_tr": "it exists on AMD GPUs only; use T.copy", "ws_op": _SCHEDULE, "WSSchedule": _SCHEDULE, "WSRole": _SCHEDULE,
    "WSPipeline": _SCHEDULE, "WSScope": _SCHEDULE, "WSSync": _SCHEDULE, "WSOpRef": _SCHEDULE, "WSInstr": _SCHEDULE, "WSID": _SCHEDULE,
}  # fmt: skip


def absent(name: str) -> Callable[..., NoReturn] | None:
    """The function that refuses `name`, or None if the wider language has no such name either."""
    remedy = ABSENT.get(name)
    if remedy is None:
        return None

    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise TileNotSupportedError(f"T.{name} is not part of this package", remedy=remedy)

    refuse.__name__ = refuse.__qualname__ = name
    refuse.__doc__ = f"Not part of this package; {remedy}."
    return refuse
