"""T.im2col: one tile of the matrix whose product with the weights is a 2-D convolution.

In: an NHWC image, a (rows, columns) tile, the tile's position in that matrix. Out: a `tl.tileop.im2col` statement.
"""

from __future__ import annotations

from typing import Any

from ..errors import TileTypeError, TileValueError
from ..ir.builder import in_kernel
from ..ir.dialect import FRAGMENT, GLOBAL, SHARED_SCOPES, make_call
from ..ir.expr import as_extent, binary, constant, convert, if_then_else
from ..ir.tvm_api import Call, Stmt, Var, dtype_of, load, store
from .base import LowerContext, TileOperator
from .loops import extents_of, indices, nest
from .operands import operand, require_inside


def im2col(
    img: Any, col: Any, nhw_step: Any, c_step: Any, kernel: int, stride: int, dilation: int, pad: int, *, eviction_policy: str | None = None
) -> None:
    """Gather a tile of the convolution matrix.

    img: an NHWC tensor in global memory. col: a (rows, columns) tile. nhw_step, c_step: the tile's position, in tiles.
    With m = nhw_step * rows + i and k = c_step * columns + j, col[i, j] is the image at output position m (n, oh, ow
    in row-major order), filter tap and channel k (kh, kw, c); 0 in the padding. kernel (both sides), stride, dilation,
    pad: Python ints. eviction_policy: a hint.
    """
    _emit("T.im2col", img, col, nhw_step, c_step, kernel, stride, dilation, pad)


def c2d_im2col(
    img: Any, col: Any, nhw_step: Any, c_step: Any, kernel: int, stride: int, dilation: int, pad: int, *, eviction_policy: str | None = None
) -> None:
    """The older name of `T.im2col`."""
    _emit("T.c2d_im2col", img, col, nhw_step, c_step, kernel, stride, dilation, pad)


def _emit(what: str, img: Any, col: Any, nhw_step: Any, c_step: Any, kernel: Any, stride: Any, dilation: Any, pad: Any) -> None:
    builder = in_kernel(what)
    source = operand(img, "img", what, scopes=(GLOBAL,))
    target = operand(col, "col", what, scopes=(*SHARED_SCOPES, FRAGMENT))
    if len(source.extents) != 4 or source.form == "corner":
        raise TileValueError(f"{what}: {source} must be a four-dimensional image (N, H, W, C)")
    if len(target.extents) != 2 or target.form == "corner":
        raise TileValueError(f"{what}: {target} must be a two-dimensional tile")
    require_inside(target, what)
    numbers = {"kernel": (kernel, 1), "stride": (stride, 1), "dilation": (dilation, 1), "pad": (pad, 0)}
    for name, (value, least) in numbers.items():
        if not isinstance(value, int) or isinstance(value, bool):
            raise TileTypeError(f"{what}: {name}={value!r} must be a Python int")
        if value < least:
            raise TileValueError(f"{what}: {name}={value} must be at least {least}")
    for size in source.extents[1:3]:
        outputs = _output_size(size, *(value for value, _ in numbers.values()))
        if isinstance(outputs, int) and outputs < 1:
            raise TileValueError(f"{what}: a kernel of {kernel} (dilation {dilation}, pad {pad}) has no output position in {source}")
    steps = [convert(as_extent(v, f"{what}: {n}"), "int32") for n, v in (("nhw_step", nhw_step), ("c_step", c_step))]
    builder.evaluate(make_call("tl.tileop.im2col", [source.region, target.region, *steps], **{n: v for n, (v, _) in numbers.items()}))


def lower(call: Call, ctx: LowerContext) -> Stmt:
    """col[i, j] = inside(h, w) ? img[n, h, w, c] : 0."""
    img, col, nhw_step, c_step = call.args
    kernel, stride, dilation, pad = (int(call.attrs[k]) for k in ("kernel", "stride", "dilation", "pad"))
    (_, height, width, channels), (rows, columns) = extents_of(img), extents_of(col)

    out_h, out_w = (_output_size(size, kernel, stride, dilation, pad) for size in (height, width))
    element = dtype_of(col)

    def body(position: list[Var]) -> list[Stmt]:
        m, k = nhw_step * rows + position[0], c_step * columns + position[1]
        n, in_image = m // (out_h * out_w), m % (out_h * out_w)
        h = in_image // out_w * stride + k // (kernel * channels) * dilation - pad
        w = m % out_w * stride + k // channels % kernel * dilation - pad
        inside = _all(binary(">=", h, 0), binary("<", h, height), binary(">=", w, 0), binary("<", w, width))
        pixel = convert(load(img.source, indices(img, {0: n, 1: h, 2: w, 3: k % channels})), element)
        return [store(col.source, if_then_else(inside, pixel, constant(0, element)), indices(col, dict(enumerate(position))), ctx.span)]

    return nest([rows, columns], body, ctx)


def _output_size(size: Any, kernel: int, stride: int, dilation: int, pad: int) -> Any:
    return binary("//", size + 2 * pad - (kernel - 1) * dilation - 1, stride) + 1


def _all(*conditions: Any) -> Any:
    result = conditions[0]
    for condition in conditions[1:]:
        result = binary("and", result, condition)
    return result


IM2COL = TileOperator("tl.tileop.im2col", lower)
