"""Names of the language that only certain GPUs have.

In: anything. Out: a `tl.gpu_only` statement or value with the name; compiling for a target without it raises
`TileNotSupportedError` at the user's line. `T.__ldg` is an ordinary load everywhere.
"""

from __future__ import annotations

from typing import Any

from ..errors import TileTypeError
from ..ir.builder import in_kernel
from ..ir.dialect import make_call
from ..ir.tvm_api import Expr, TensorLoad


def _only(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """The statement `name`. Operands are kept as text: what they mean is up to the target that has it."""
    builder = in_kernel(f"T.{name}")
    text = ", ".join([*map(str, args), *(f"{k}={v}" for k, v in kwargs.items())])
    builder.evaluate(make_call("tl.gpu_only", [], span=builder.span(), what=f"T.{name}", operands=text))


def _value(name: str, dtype: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Expr:
    """The value `name`."""
    builder = in_kernel(f"T.{name}")
    text = ", ".join([*map(str, args), *(f"{k}={v}" for k, v in kwargs.items())])
    return make_call("tl.gpu_only", [], dtype, builder.span(), what=f"T.{name}", operands=text)


def named_barrier_arrive(*args: Any, **kwargs: Any) -> None:
    """Arrive at a named barrier without waiting. GPUs only."""
    _only("named_barrier_arrive", args, kwargs)


def cp_async_barrier_noinc(*args: Any, **kwargs: Any) -> None:
    """Arrive at an mbarrier when the thread's asynchronous copies are done. GPUs only."""
    _only("cp_async_barrier_noinc", args, kwargs)


def ptx_cp_async(*args: Any, **kwargs: Any) -> None:
    """Asynchronous copy of 4, 8 or 16 bytes from global to shared memory. GPUs only."""
    _only("ptx_cp_async", args, kwargs)


def create_tma_descriptor(*args: Any, **kwargs: Any) -> Expr:
    """Describe a tensor for bulk copies. GPUs only."""
    return _value("create_tma_descriptor", "handle", args, kwargs)


def tma_load(*args: Any, **kwargs: Any) -> None:
    """Raw bulk copy from global to shared memory. GPUs only."""
    _only("tma_load", args, kwargs)


def tma_load_2sm(*args: Any, **kwargs: Any) -> None:
    """Raw bulk copy for a pair of multiprocessors. GPUs only."""
    _only("tma_load_2sm", args, kwargs)


def tma_store(*args: Any, **kwargs: Any) -> None:
    """Raw bulk copy from shared to global memory. GPUs only."""
    _only("tma_store", args, kwargs)


def tma_gather4(*args: Any, **kwargs: Any) -> None:
    """Bulk copy of four rows of a tensor. GPUs only."""
    _only("tma_gather4", args, kwargs)


def tma_scatter4(*args: Any, **kwargs: Any) -> None:
    """Bulk store of four rows of a tensor. GPUs only."""
    _only("tma_scatter4", args, kwargs)


def deallocate_tmem(*args: Any, **kwargs: Any) -> None:
    """Free tensor memory. GPUs only."""
    _only("deallocate_tmem", args, kwargs)


def tcgen05_gemm(*args: Any, **kwargs: Any) -> None:
    """Matrix product in tensor memory. GPUs only."""
    _only("tcgen05_gemm", args, kwargs)


def tcgen05_gemm_blockscaled(*args: Any, **kwargs: Any) -> None:
    """Matrix product in tensor memory with block scales. GPUs only."""
    _only("tcgen05_gemm_blockscaled", args, kwargs)


def tcgen05_mma_arrive(*args: Any, **kwargs: Any) -> None:
    """Arrive at a barrier when the matrix products are done. GPUs only."""
    _only("tcgen05_mma_arrive", args, kwargs)


def tcgen05_cp_warpx4(*args: Any, **kwargs: Any) -> None:
    """Copy from shared to tensor memory. GPUs only."""
    _only("tcgen05_cp_warpx4", args, kwargs)


def tcgen05_sf_warp_transpose(*args: Any, **kwargs: Any) -> None:
    """Transpose scale factors for tensor memory. GPUs only."""
    _only("tcgen05_sf_warp_transpose", args, kwargs)


def tcgen05_before_thread_sync(*args: Any, **kwargs: Any) -> None:
    """Order tensor-memory operations before a barrier. GPUs only."""
    _only("tcgen05_before_thread_sync", args, kwargs)


def tcgen05_after_thread_sync(*args: Any, **kwargs: Any) -> None:
    """Order tensor-memory operations after a barrier. GPUs only."""
    _only("tcgen05_after_thread_sync", args, kwargs)


def mma_gemm_blockscaled(*args: Any, **kwargs: Any) -> None:
    """Matrix product with block scales. GPUs only."""
    _only("mma_gemm_blockscaled", args, kwargs)


def ptx_mma(*args: Any, **kwargs: Any) -> None:
    """Raw tensor-core product of one warp. GPUs only."""
    _only("ptx_mma", args, kwargs)


def ptx_mma_sp(*args: Any, **kwargs: Any) -> None:
    """Raw tensor-core product of one warp, 2:4 sparse. GPUs only."""
    _only("ptx_mma_sp", args, kwargs)


def ptx_mma_block_scale(*args: Any, **kwargs: Any) -> None:
    """Raw tensor-core product of one warp with block scales. GPUs only."""
    _only("ptx_mma_block_scale", args, kwargs)


def ptx_ldmatrix(*args: Any, **kwargs: Any) -> None:
    """Raw load of 8x8 matrices from shared memory. GPUs only."""
    _only("ptx_ldmatrix", args, kwargs)


def ptx_stmatrix(*args: Any, **kwargs: Any) -> None:
    """Raw store of 8x8 matrices to shared memory. GPUs only."""
    _only("ptx_stmatrix", args, kwargs)


def mma_store(*args: Any, **kwargs: Any) -> None:
    """Raw store of a tensor-core accumulator. GPUs only."""
    _only("mma_store", args, kwargs)


def mma_fill(*args: Any, **kwargs: Any) -> None:
    """Raw fill of a tensor-core accumulator. GPUs only."""
    _only("mma_fill", args, kwargs)


def ptx_wgmma_ss(*args: Any, **kwargs: Any) -> None:
    """Raw product of a warp group, operands in shared memory. GPUs only."""
    _only("ptx_wgmma_ss", args, kwargs)


def ptx_wgmma_rs(*args: Any, **kwargs: Any) -> None:
    """Raw product of a warp group, A in registers. GPUs only."""
    _only("ptx_wgmma_rs", args, kwargs)


def initialize_wgmma_descriptor(*args: Any, **kwargs: Any) -> None:
    """Fill a matrix descriptor. GPUs only."""
    _only("initialize_wgmma_descriptor", args, kwargs)


def initialize_tcgen05_descriptor(*args: Any, **kwargs: Any) -> None:
    """Fill a matrix descriptor of tensor memory. GPUs only."""
    _only("initialize_tcgen05_descriptor", args, kwargs)


def increase_descriptor_offset(*args: Any, **kwargs: Any) -> None:
    """Advance a matrix descriptor. GPUs only."""
    _only("increase_descriptor_offset", args, kwargs)


def clc_try_cancel(*args: Any, **kwargs: Any) -> None:
    """Ask for the next block of a running launch. GPUs only."""
    _only("clc_try_cancel", args, kwargs)


def clc_is_canceled(*args: Any, **kwargs: Any) -> Expr:
    """Was a block handed over?. GPUs only."""
    return _value("clc_is_canceled", "int32", args, kwargs)


def clc_get_first_ctaid(*args: Any, **kwargs: Any) -> Expr:
    """The block that was handed over. GPUs only."""
    return _value("clc_get_first_ctaid", "int32", args, kwargs)


def tvm_mfma(*args: Any, **kwargs: Any) -> None:
    """Raw matrix product of AMD GPUs. GPUs only."""
    _only("tvm_mfma", args, kwargs)


def tvm_mfma_store(*args: Any, **kwargs: Any) -> None:
    """Raw store of an AMD accumulator. GPUs only."""
    _only("tvm_mfma_store", args, kwargs)


def tvm_rdna_wmma(*args: Any, **kwargs: Any) -> None:
    """Raw matrix product of AMD RDNA GPUs. GPUs only."""
    _only("tvm_rdna_wmma", args, kwargs)


def annotate_ws_schedule(*args: Any, **kwargs: Any) -> None:
    """Schedule of warp roles. GPUs only."""
    _only("annotate_ws_schedule", args, kwargs)


def ldg32(*args: Any, **kwargs: Any) -> Expr:
    """Raw load of 32 bits from global memory. GPUs only."""
    return _value("ldg32", "uint32", args, kwargs)


def ldg64(*args: Any, **kwargs: Any) -> Expr:
    """Raw load of 64 bits from global memory. GPUs only."""
    return _value("ldg64", "uint32x2", args, kwargs)


def ldg128(*args: Any, **kwargs: Any) -> Expr:
    """Raw load of 128 bits from global memory. GPUs only."""
    return _value("ldg128", "uint32x4", args, kwargs)


def ldg256(*args: Any, **kwargs: Any) -> Expr:
    """Raw load of 256 bits from global memory. GPUs only."""
    return _value("ldg256", "uint32x8", args, kwargs)


def lds32(*args: Any, **kwargs: Any) -> Expr:
    """Raw load of 32 bits from shared memory. GPUs only."""
    return _value("lds32", "uint32", args, kwargs)


def lds64(*args: Any, **kwargs: Any) -> Expr:
    """Raw load of 64 bits from shared memory. GPUs only."""
    return _value("lds64", "uint32x2", args, kwargs)


def lds128(*args: Any, **kwargs: Any) -> Expr:
    """Raw load of 128 bits from shared memory. GPUs only."""
    return _value("lds128", "uint32x4", args, kwargs)


def stg32(*args: Any, **kwargs: Any) -> None:
    """Raw store of 32 bits to global memory. GPUs only."""
    _only("stg32", args, kwargs)


def stg64(*args: Any, **kwargs: Any) -> None:
    """Raw store of 64 bits to global memory. GPUs only."""
    _only("stg64", args, kwargs)


def stg128(*args: Any, **kwargs: Any) -> None:
    """Raw store of 128 bits to global memory. GPUs only."""
    _only("stg128", args, kwargs)


def stg256(*args: Any, **kwargs: Any) -> None:
    """Raw store of 256 bits to global memory. GPUs only."""
    _only("stg256", args, kwargs)


def sts32(*args: Any, **kwargs: Any) -> None:
    """Raw store of 32 bits to shared memory. GPUs only."""
    _only("sts32", args, kwargs)


def sts64(*args: Any, **kwargs: Any) -> None:
    """Raw store of 64 bits to shared memory. GPUs only."""
    _only("sts64", args, kwargs)


def sts128(*args: Any, **kwargs: Any) -> None:
    """Raw store of 128 bits to shared memory. GPUs only."""
    _only("sts128", args, kwargs)


def __ldg(element: Any) -> Expr:
    """Load of an element through the read-only cache."""
    if not isinstance(element, TensorLoad):
        raise TileTypeError(f"T.__ldg: {element!r} is no element of a buffer", remedy="write T.__ldg(A[i])")
    return element
