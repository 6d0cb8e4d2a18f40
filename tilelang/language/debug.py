"""Looking into a running kernel: `T.print` and `T.device_assert`; random numbers.

In: expressions, buffers, messages. Out: statements of the dialect; every target prints in its own way.
"""

from __future__ import annotations

from typing import Any

from ..errors import TileValueError
from ..ir import expr as ex
from ..ir.builder import in_kernel
from ..ir.dialect import VAR, make_call
from ..ir.tvm_api import Expr, TensorRegion, Var, dtype_of, is_buffer, region, shape_of


def print(obj: Any = None, msg: str = "", warp_group_id: int = 0, warp_id: int = 0) -> None:
    """Print from the kernel.

    obj: an expression (every thread prints one line: message, block, thread, type, value), a buffer or region (a fragment or shared
    tile is printed once for the block, each element with its index; other memory by every thread), or None (the message
    only). msg: default names the expression or buffer. warp_group_id, warp_id: which warp's first lane prints a tile.
    Raises `TileValueError` for anything else.
    """
    builder = in_kernel("T.print")
    if obj is None or isinstance(obj, str):
        call = make_call("tl.print", [], span=builder.span(), message=msg or obj or "")
    elif isinstance(obj, TensorRegion) or (isinstance(obj, Var) and is_buffer(obj) and obj.scope() != VAR):
        block = obj if isinstance(obj, TensorRegion) else region(obj, [0] * len(shape_of(obj)), shape_of(obj))
        message = msg or f"buffer<{block.source.name}, {dtype_of(block)}>"
        call = make_call("tl.print", [block], span=builder.span(), message=message, warp_group_id=warp_group_id, warp_id=warp_id)
    elif isinstance(obj, (Expr, *ex.Number)):
        call = make_call("tl.print", [ex.as_expr(obj)], span=builder.span(), message=msg or f"expr<{_text(obj)}>")
    else:
        raise TileValueError(f"T.print: {obj!r} ({type(obj).__name__}) is no expression and no buffer")
    builder.evaluate(call)


def _text(value: Any) -> str:
    return str(value.name) if isinstance(value, Var) else str(value)


def device_assert(condition: Any, msg: str = "", no_stack_info: bool = False) -> None:
    """Stop the kernel where the condition is false in some thread; the message goes to the caller."""
    builder = in_kernel("T.device_assert")
    test = ex.truth(condition)
    builder.evaluate(make_call("tl.device_assert", [ex.as_expr(test)], span=builder.span(), message=msg, no_stack_info=no_stack_info))


# ---------------------------------------------------------------- random numbers
def rng_init(seed: Any, seq: Any = None, off: Any = 0, generator: str = "curandStatePhilox4_32_10_t") -> None:
    """Start each thread's generator. seq: the thread's sequence, default its global index. off: numbers to skip."""
    builder = in_kernel("T.rng_init")
    values = [ex.convert(seed, "uint64"), ex.convert(off, "uint64")] + ([] if seq is None else [ex.convert(seq, "uint64")])
    builder.evaluate(make_call("tl.random", values, span=builder.span(), what="init", generator=generator))


def rng_rand() -> Expr:
    """A uniform random uint32 for each thread."""
    in_kernel("T.rng_rand")
    return make_call("tl.random", [], "uint32", what="uint32")


def rng_rand_float(bit: int = 32, dist: str = "uniform") -> Expr:
    """A random float of 32 or 64 bits. dist: "uniform" on (0, 1] or "normal" with mean 0 and variance 1."""
    in_kernel("T.rng_rand_float")
    if dist not in ("uniform", "normal") or bit not in (32, 64):
        raise TileValueError(f"T.rng_rand_float: bit={bit!r}, dist={dist!r}; bit is 32 or 64, dist 'uniform' or 'normal'")
    return make_call("tl.random", [], f"float{bit}", what=dist)
