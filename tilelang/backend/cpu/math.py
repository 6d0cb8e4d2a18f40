"""Elementwise functions of float32 as straight-line arithmetic, which LLVM turns into vector code.

In: a float32 expression. Out: a float32 expression, within about 2 ulp of the exact value, NaN, infinities, signed zeros
and subnormals included. Functions that are rarely hot call the C library in float64. Coefficients are our own minimax
fits (Lawson iteration on Chebyshev nodes, 40-digit references).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ...ir.tvm_api import Expr, FloatImm, const, tirx
from .expressions import bits_of, cast, f32, float_of, named

EXP2 = (0.6931472029, 0.2402264791, 0.05550332463, 0.009618437474, 0.001339887688, 0.0001535333211)  # (2^x - 1) / x on [-1/2, 1/2]
EXP = (0.4999999344, 0.1666652046, 0.04166838989, 0.008368737213, 0.001381455977)  # (e^x - 1 - x) / x^2 on [-ln2/2, ln2/2]
LOG = (0.3333331259, -0.250000096, 0.200021193, -0.166679961, 0.1421954006, -0.124055798, 0.118882417, -0.1167572607,
       0.06746549972)  # (log(1+x) - x + x^2/2) / x^3 on [sqrt(1/2)-1, sqrt(2)-1]  # fmt: skip
TANH = (-0.3333333057, 0.1333319586, -0.05394537283, 0.02169257905, -0.008156216571, 0.002122691648)  # (tanh(x)/x - 1)/x^2, x^2 <= 0.4
ERF = (1.128379167, -0.3761263848, 0.1128378275, -0.02686544582, 0.005221074878, -0.0008484711446, 0.0001127054445,
       -9.680136248e-06)  # erf(x)/x, x^2 <= 1  # fmt: skip
LOG_ERFC = (0.0001252314226, -1.129203502, -0.6341969943, -0.1069602642, 0.02383540585, -0.0033596249, 0.0001015138829,
            6.440063775e-05, -1.24608928e-05, 7.8500316e-07)  # log(erfc(x)) on [1, 4]  # fmt: skip
SIN = (-0.1666666664, 0.008333329266, -0.0001983929589, 2.717937902e-06)  # (sin(x)/x - 1)/x^2, |x| <= pi/4
COS = (0.04166666662, -0.00138888836, 2.47994783e-05, -2.720676322e-07)  # (cos(x) - 1 + x^2/2)/x^4, |x| <= pi/4

LN2 = 0.6931471805599453
SHIFTS = (0, 4, 29, 54, 79)  # of the ranges of |x| below 2^28, 2^53, 2^78, 2^103, 2^128 in the reduction by pi/2


def _two_over_pi() -> list[tuple[float, float, float]]:
    """2^shift 2/pi modulo 4 for each range in three pieces: 29 binary digits, 29 digits, the next 53."""
    digits, precision = 0xA2F9836E4E441529FC2757D1F534DDC0DB6295993C439041FE5163ABDEBB, 240  # 2/pi * 2^240
    table = []
    for shift in SHIFTS:
        unit = precision - shift  # binary digits after the point that are left
        value = digits % (1 << (unit + 2))
        cuts = [value >> (unit - n) << (unit - n) for n in (27, 56, 109)]
        first, second, third = (math.ldexp(part, -unit) for part in (cuts[0], cuts[1] - cuts[0], cuts[2] - cuts[1]))
        table.append((first, second, third))
    return table


TWO_OVER_PI = _two_over_pi()
ROUND = 12582912.0 + 254.0  # 1.5 * 2^23 + 254: adding it to |x| < 2^22 leaves the nearest integer (plus 254) in the low bits


def polynomial(x: Expr, coefficients: Sequence[float]) -> Expr:
    """Horner's scheme; coefficients of rising powers."""
    result: Expr = f32(coefficients[-1])
    for c in reversed(coefficients[:-1]):
        result = result * x + f32(c)
    return result


def _clamp(x: Expr, low: float, high: float) -> Expr:
    """`x` limited to [low, high]; NaN stays NaN. In the form that LLVM turns into one min and one max."""
    return named(tirx.Select(f32(low) > x, f32(low), x), lambda y: tirx.Select(f32(high) < y, f32(high), y), "y")


def _scale(value: Expr, shifted: Expr) -> Expr:
    """value * 2^n, where `shifted` is n + ROUND. In two steps, so that results may be subnormal or overflow.

    ROUND ends in 254, so that half of the bits of `shifted`, moved into a float's exponent, is 2^(n/2).
    """
    shift = const(23, "uint32")

    def steps(bits: Expr) -> Expr:
        half = bits >> const(1, "uint32")
        return named(half, lambda h: value * float_of(h << shift) * float_of((bits - h) << shift), "h")

    return named(bits_of(shifted), steps, "b")


def exp2(x: Expr) -> Expr:
    def reduced(x: Expr) -> Expr:
        def with_n(t: Expr) -> Expr:
            return named(x - (t - f32(ROUND)), lambda r: _scale(polynomial(r, EXP2) * r + f32(1.0), t), "r")

        return named(x + f32(ROUND), with_n, "t")

    return named(x, lambda x: named(_clamp(x, -151.0, 128.0), reduced, "x"), "x")


def exp(x: Expr) -> Expr:
    high, low = 0.693359375, LN2 - 0.693359375

    def reduced(x: Expr) -> Expr:
        def with_n(t: Expr) -> Expr:
            n = t - f32(ROUND)
            return named(x - n * f32(high) - n * f32(low), lambda r: _scale((polynomial(r, EXP) * r * r + r) + f32(1.0), t), "r")

        return named(x * f32(1.0 / LN2) + f32(ROUND), with_n, "t")

    return named(x, lambda x: named(_clamp(x, -104.5, 88.75), reduced, "x"), "x")


def exp10(x: Expr) -> Expr:
    """Through float64's exponent: x * log2(10) needs more digits than float32 has."""
    high, low = 0.30102539, 0.30102999566398120 - 0.30102539  # log10(2) in two parts

    def reduced(x: Expr) -> Expr:
        def with_n(t: Expr) -> Expr:
            n = t - f32(ROUND)
            rest = (x - n * f32(high) - n * f32(low)) * f32(2.302585092994046)
            return named(rest, lambda r: _scale((polynomial(r, EXP) * r * r + r) + f32(1.0), t), "r")

        return named(x * f32(3.321928094887362) + f32(ROUND), with_n, "t")

    return named(x, lambda x: named(_clamp(x, -45.5, 38.6), reduced, "x"), "x")


def _log(x: Expr, finish: Callable[[Expr, Expr, Expr], Expr]) -> Expr:
    """`finish(f, y, e)` with x = 2^e (1 + f) and y = log(1 + f) - f; then the special cases."""

    def main(x: Expr) -> Expr:
        small = x < f32(1.17549435e-38)
        normal = tirx.Select(small, x * f32(8388608.0), x)

        def split(bits: Expr) -> Expr:
            # Subtracting the bits of sqrt(1/2) puts the mantissa into [sqrt(1/2), sqrt(2)).
            moved = tirx.Cast("int32", bits) - const(0x3F3504F3, "int32")
            exponent = moved >> const(23, "int32")
            mantissa = float_of(tirx.Cast("uint32", (moved & const(0x7FFFFF, "int32")) + const(0x3F3504F3, "int32")))
            e = tirx.Cast("float32", exponent) - tirx.Select(small, f32(23.0), f32(0.0))

            def tail(f: Expr) -> Expr:
                z = f * f
                y = polynomial(f, LOG) * f * z - z * f32(0.5)
                return named(y, lambda y: named(e, lambda e: finish(f, y, e), "e"), "y")

            return named(mantissa - f32(1.0), tail, "f")

        result = named(bits_of(normal), split, "b")
        result = tirx.Select(x == f32(0.0), f32(float("-inf")), result)
        nan = FloatImm("float32", float("nan"))
        return tirx.Select(x >= f32(0.0), tirx.Select(x == f32(float("inf")), x, result), nan)

    return named(x, main, "x")


def log(x: Expr) -> Expr:
    return _log(x, lambda f, y, e: (y + e * f32(LN2 - 0.693359375)) + f + e * f32(0.693359375))


def log2(x: Expr) -> Expr:
    extra = 1.0 / LN2 - 1.0
    return _log(x, lambda f, y, e: (y * f32(extra) + f * f32(extra)) + y + f + e)


def log10(x: Expr) -> Expr:
    return log(x) * f32(0.4342944819032518)


def tanh(x: Expr) -> Expr:
    def main(x: Expr) -> Expr:
        z = x * x
        small = tirx.Select(x == f32(0.0), x, named(z, lambda z: polynomial(z, TANH) * z, "z") * x + x)

        def large(magnitude: Expr) -> Expr:
            value = f32(1.0) - f32(2.0) / (exp(magnitude + magnitude) + f32(1.0))
            return tirx.Select(magnitude < f32(0.625), small, _with_sign(value, x))

        return named(_abs(x), large, "a")

    return named(x, main, "x")


def sigmoid(x: Expr) -> Expr:
    def main(x: Expr) -> Expr:
        e = exp(f32(0.0) - _abs(x))
        return named(e, lambda e: tirx.Select(x < f32(0.0), e, f32(1.0)) / (f32(1.0) + e), "e")

    return named(x, main, "x")


def erf(x: Expr) -> Expr:
    def main(x: Expr) -> Expr:
        small = named(x * x, lambda z: polynomial(z, ERF), "z") * x

        def large(a: Expr) -> Expr:
            value = f32(1.0) - exp(named(_clamp(a, 0.0, 4.0), lambda c: polynomial(c, LOG_ERFC), "c"))
            return tirx.Select(a <= f32(1.0), small, _with_sign(value, x))

        return named(_abs(x), large, "a")

    return named(x, main, "x")


def _abs(x: Expr) -> Expr:
    return float_of(bits_of(x) & const(0x7FFFFFFF, "uint32"))


def _with_sign(magnitude: Expr, x: Expr) -> Expr:
    """A value that is not negative, with the sign of x."""
    return float_of(bits_of(magnitude) | (bits_of(x) & const(0x80000000, "uint32")))


def _quadrant(x: Expr, use: Callable[[Expr, Expr], Expr]) -> Expr:
    """`use(r, q)` with x = q pi/2 + r (q modulo 4), |r| <= pi/4, for every finite x; no branch, so that loops become vector code.

    Written x = s 2^shift with s a whole number below 2^49 (or shift = 0), only 2^shift 2/pi modulo 4 matters. It has three
    pieces; the products with the first two are exact, and so is what is left of them without their whole part.
    """
    wide = tirx.Cast("float64", x)
    magic = const(6755399441055744.0, "float64")  # 1.5 * 2^52: adding it rounds to a whole number, which is in the low bits

    def by_size(magnitude: Expr, values: Sequence[float]) -> Expr:
        chosen: Expr = const(values[0], "float64")
        for shift, value in list(zip(SHIFTS, values, strict=True))[1:]:
            chosen = tirx.Select(magnitude >= f32(2.0 ** (24 + shift)), const(value, "float64"), chosen)
        return chosen

    def whole(value: Expr, then: Callable[[Expr, Expr], Expr]) -> Expr:
        return named(value + magic, lambda t: then(t - magic, tirx.call_intrin("int64", "tirx.reinterpret", t)), "t")

    def main(magnitude: Expr) -> Expr:
        first, second, third = (by_size(magnitude, piece) for piece in zip(*TWO_OVER_PI, strict=True))
        scaled = wide * by_size(magnitude, [2.0**-shift for shift in SHIFTS])

        def products(s: Expr) -> Expr:
            return named(s * first, lambda p1: named(s * second, lambda p2: reduced(p1, p2, s * third), "p2"), "p1")

        return named(scaled, products, "s")

    def reduced(p1: Expr, p2: Expr, p3: Expr) -> Expr:
        def both(n1: Expr, q1: Expr, n2: Expr, q2: Expr) -> Expr:
            def total(f1: Expr, f2: Expr) -> Expr:
                return whole(f1 + f2, lambda n3, q3: end(f1 - n3 + f2, q1 + q2 + q3))

            return named(p1 - n1, lambda f1: named(p2 - n2, lambda f2: total(f1, f2), "f2"), "f1")

        def end(turns: Expr, quadrant: Expr) -> Expr:
            r = tirx.Cast("float32", (turns + p3) * const(math.pi / 2, "float64"))
            return named(r, lambda r: named(tirx.Cast("int32", quadrant), lambda q: use(r, q), "q"), "r")

        return whole(p1, lambda n1, q1: whole(p2, lambda n2, q2: both(n1, q1, n2, q2)))

    return named(_abs(x), main, "a")


def _sin_cos(x: Expr, shift: int) -> Expr:
    def use(r: Expr, q: Expr) -> Expr:
        q = q + const(shift, "int32")

        def main(z: Expr) -> Expr:
            sine = tirx.Select(z == f32(0.0), r, polynomial(z, SIN) * z * r + r)  # keeps the sign of zero
            cosine = polynomial(z, COS) * z * z - z * f32(0.5) + f32(1.0)
            value = tirx.Select((q & const(1, "int32")) == const(0, "int32"), sine, cosine)
            flip = tirx.Cast("uint32", (q & const(2, "int32")) << const(30, "int32"))
            return float_of(bits_of(value) ^ flip)

        return named(r * r, main, "z")

    return _quadrant(x, use)


def sin(x: Expr) -> Expr:
    return _sin_cos(x, 0)


def cos(x: Expr) -> Expr:
    return _sin_cos(x, 1)


def tan(x: Expr) -> Expr:
    return named(x, lambda x: sin(x) / cos(x), "x")


def rsqrt(x: Expr) -> Expr:
    return f32(1.0) / tirx.sqrt(x)


def libm(name: str, *values: Expr) -> Expr:
    """A function of the C library, in float64: these names exist on every platform."""
    return tirx.call_pure_extern("float64", name, *[cast(v, "float64") for v in values])


POLYNOMIAL: dict[str, Callable[[Expr], Expr]] = {
    "exp": exp, "exp2": exp2, "exp10": exp10, "log": log, "log2": log2, "log10": log10, "tanh": tanh, "sigmoid": sigmoid,
    "erf": erf, "sin": sin, "cos": cos, "tan": tan, "rsqrt": rsqrt,
}  # fmt: skip
# Called in float64; the language's names are C's.
LIBRARY = (
    "exp", "exp2", "log", "log2", "log10", "log1p", "expm1", "tanh", "sin", "cos", "tan", "sinh", "cosh", "asin", "acos", "atan",
    "atan2", "asinh", "acosh", "atanh", "erf", "erfc", "pow", "fmod", "hypot", "cbrt", "lgamma", "tgamma", "fdim", "remainder",
)  # fmt: skip
