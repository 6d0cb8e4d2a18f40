"""Floats of 8 bits and less, exactly as ml_dtypes defines them: bit patterns to float32 and back.

`decode(bits, name)`: uint8 expression -> float32 expression, exact. `encode(value, name)`: float32 -> uint8, round to
nearest even, subnormals kept, overflow and NaN as the format has them. TVM's own conversions are wrong for subnormals.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from ...ir.tvm_api import Expr, FloatImm, IntImm, Var, const, tirx
from .expressions import bits_of, float_of, let


@dataclass(frozen=True)
class SmallFloat:
    """sign bit, `exponent` and `mantissa` bits, exponent bias. overflow: bit pattern that stands for values beyond the
    largest finite one (without sign); nan: pattern of NaN (without sign); infinity: pattern of inf, or -1.
    unsigned_zero: 0x80 is the only NaN and there is no -0."""

    name: str
    exponent: int
    mantissa: int
    bias: int
    largest: int
    overflow: int
    nan: int
    infinity: int = -1
    unsigned_zero: bool = False
    bits: int = 8

    @property
    def sign(self) -> int:
        return 1 << (self.bits - 1)


FORMATS = {
    f.name: f
    for f in (
        SmallFloat("float8_e4m3fn", 4, 3, 7, largest=0x7E, overflow=0x7F, nan=0x7F),
        SmallFloat("float8_e5m2", 5, 2, 15, largest=0x7B, overflow=0x7C, nan=0x7E, infinity=0x7C),
        SmallFloat("float8_e4m3", 4, 3, 7, largest=0x77, overflow=0x78, nan=0x7C, infinity=0x78),
        SmallFloat("float8_e3m4", 3, 4, 3, largest=0x6F, overflow=0x70, nan=0x78, infinity=0x70),
        SmallFloat("float8_e4m3fnuz", 4, 3, 8, largest=0x7F, overflow=0x80, nan=0x80, unsigned_zero=True),
        SmallFloat("float8_e5m2fnuz", 5, 2, 16, largest=0x7F, overflow=0x80, nan=0x80, unsigned_zero=True),
        SmallFloat("float8_e4m3b11fnuz", 4, 3, 11, largest=0x7F, overflow=0x80, nan=0x80, unsigned_zero=True),
        SmallFloat("float6_e2m3fn", 2, 3, 1, largest=0x1F, overflow=0x1F, nan=0, bits=6),
        SmallFloat("float6_e3m2fn", 3, 2, 3, largest=0x1F, overflow=0x1F, nan=0, bits=6),
        SmallFloat("float4_e2m1fn", 2, 1, 1, largest=0x7, overflow=0x7, nan=0, bits=4),
    )
}
EXPONENT_ONLY = "float8_e8m0fnu"


def is_small_float(dtype: str) -> bool:
    """Is this scalar type one of ours?"""
    return dtype in FORMATS or dtype == EXPONENT_ONLY


def _u32(value: int) -> IntImm:
    return const(value, "uint32")


def decode(bits: Expr, name: str) -> Expr:
    """float32 value of a uint8 bit pattern."""
    wide = Var("u", "uint32")
    if name == EXPONENT_ONLY:
        value = tirx.Select(wide == _u32(0), _u32(0x00400000), wide << _u32(23))
        return tirx.Let(wide, tirx.Cast("uint32", bits), float_of(tirx.Select(wide == _u32(0xFF), _u32(0x7FC00000), value)))
    f = FORMATS[name]
    magnitude = Var("m", "uint32")
    sign = (wide & _u32(f.sign)) << _u32(32 - f.bits)
    # The pattern moved to float32's place is the value times a power of two, subnormals included.
    scaled = float_of(magnitude << _u32(23 - f.mantissa)) * FloatImm("float32", 2.0 ** (127 - f.bias))
    value: Expr = bits_of(scaled)
    if f.infinity >= 0:
        special = tirx.Select(magnitude == _u32(f.infinity), _u32(0x7F800000), _u32(0x7FC00000))
        value = tirx.Select(magnitude >= _u32(f.infinity), special, value)
    elif not f.unsigned_zero and f.bits == 8:
        value = tirx.Select(magnitude == _u32(f.nan), _u32(0x7FC00000), value)
    value = value | sign
    if f.unsigned_zero:
        value = tirx.Select(wide == _u32(0x80), _u32(0x7FC00000), value)
    return tirx.Let(wide, tirx.Cast("uint32", bits), tirx.Let(magnitude, wide & _u32(f.sign - 1), float_of(value)))


def encode(value: Expr, name: str) -> Expr:
    """uint8 bit pattern of a float32 value."""
    word = Var("w", "uint32")
    if name == EXPONENT_ONLY:
        return tirx.Let(word, bits_of(value), tirx.Cast("uint8", _encode_exponent(word)))
    f = FORMATS[name]
    magnitude = Var("m", "uint32")
    shift = 23 - f.mantissa
    # Normal numbers: round the mantissa to nearest even by an integer addition, then change the exponent's bias.
    lsb = (magnitude >> _u32(shift)) & _u32(1)
    normal = (magnitude + lsb + _u32((1 << (shift - 1)) - 1) - _u32((127 - f.bias) << 23)) >> _u32(shift)
    # Subnormal numbers: adding a float whose last bit weighs one unit of the format rounds to nearest even.
    magic = 2.0 ** (24 - f.bias - f.mantissa)
    subnormal = bits_of(float_of(magnitude) + FloatImm("float32", magic)) - _u32(_float_bits(magic))
    smallest_normal = _u32((128 - f.bias) << 23)
    rounded = Var("r", "uint32")
    result = tirx.Select(rounded > _u32(f.largest), _u32(f.overflow), rounded)
    # float32 overflows the integer formula only for inf and NaN and exponents far beyond the format's.
    too_large = magnitude >= _u32(min((127 - f.bias + (1 << f.exponent)) << 23, 0x7F800000))
    result = tirx.Select(too_large, _u32(f.overflow), result)
    result = tirx.Select(magnitude > _u32(0x7F800000), _u32(f.nan), result)
    sign = (word >> _u32(31)) << _u32(f.bits - 1)
    if f.unsigned_zero:
        signed = tirx.Select(tirx.Or(result == _u32(0), result == _u32(0x80)), result, result | sign)
    elif f.bits < 8:
        signed = tirx.Select(magnitude > _u32(0x7F800000), sign ^ _u32(f.sign), result | sign)  # no NaN: ml_dtypes gives a zero
    else:
        signed = result | sign
    signed = tirx.Let(rounded, tirx.Select(magnitude < smallest_normal, subnormal, normal), signed)
    return let(word, bits_of(value), let(magnitude, word & _u32(0x7FFFFFFF), tirx.Cast("uint8", signed)))


def _encode_exponent(word: Expr) -> Expr:
    """Nearest power of two, ties upwards; zero, negative numbers, inf and NaN are NaN."""
    normal = (word + _u32(0x400000)) >> _u32(23)
    subnormal = tirx.Select(word >= _u32(0x600000), _u32(1), _u32(0))
    result = tirx.Select(word < _u32(0x800000), subnormal, normal)
    bad = tirx.Or(word == _u32(0), word >= _u32(0x7F400000))
    return tirx.Select(bad, _u32(0xFF), result)


def _float_bits(value: float) -> int:
    return struct.unpack("<I", struct.pack("<f", value))[0]
