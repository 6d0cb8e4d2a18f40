"""Hardware instructions of a warp, one frozen record for each: text, operand layouts, NumPy model.

In the program an instruction is a statement `tl.instr` with the attribute `name` of a record here; its operands are regions,
for each lane the elements that this lane names (registers, or its address in shared memory). The CUDA printer prints a call of
`function`, whose definition is `code`; the emulator runs `model`. All lanes of the warp execute an instruction together.

Layouts are those of the PTX ISA ("Matrix Fragments for mma..."): `Fragment`s from a coordinate of the operand's matrix to
(lane, element of the lane).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...ir.dialect import make_call
from ...ir.tvm_api import Evaluate, Span, Stmt, TensorRegion
from ...layout.fragment import Fragment

WARP = 32
REGISTER, SHARED = "register", "shared"


@dataclass(frozen=True)
class Operand:
    """role: r read, w written, u updated. memory: where it is. bytes: what one lane names. dtype: element type, None where
    only the bits count. layout: matrix coordinate to (lane, element). lanes: the first so many lanes name memory; what
    the others name is ignored."""

    role: str
    memory: str
    bytes: int
    dtype: str | None = None
    layout: Fragment | None = None
    lanes: int = WARP


# Arrays (..., elements of a lane, 32 lanes), one for each operand in order -> arrays of the written operands, in order.
# Leading axes are warps that execute the instruction side by side.
Model = Callable[..., tuple[np.ndarray, ...]]


@dataclass(frozen=True)
class Instruction:
    """function: its name in C++, called with the addresses of its operands. code: the definition of that function.
    architecture: the lowest compute capability that has it, as 10 * major + minor. shape: (m, n, k) of a matrix product."""

    name: str
    operands: tuple[Operand, ...]
    function: str
    code: str
    model: Model
    architecture: int = 80
    shape: tuple[int, int, int] = (0, 0, 0)

    @property
    def roles(self) -> str:
        return "".join(o.role for o in self.operands)

    def call(self, operands: Sequence[TensorRegion], span: Span | None = None) -> Stmt:
        """The statement that executes it."""
        assert len(operands) == len(self.operands), f"{self.name} has {len(self.operands)} operands"
        return Evaluate(make_call("tl.instr", list(operands), span=span, name=self.name, roles=self.roles), span)


# ---------------------------------------------------------------- matrix products
_PTX_TYPE = {
    "float16": "f16", "bfloat16": "bf16", "float32": "tf32", "float64": "f64", "int8": "s8", "uint8": "u8",
    "float8_e4m3fn": "e4m3", "float8_e4m3": "e4m3", "float8_e5m2": "e5m2",
}  # fmt: skip
_ACCUMULATOR = {"float16": "f16", "float32": "f32", "float64": "f64", "int32": "s32"}
_CONSTRAINT = {"f16": ("uint32_t", "r"), "f32": ("float", "f"), "f64": ("double", "d"), "s32": ("int32_t", "r")}
_BITS = {"f16": 16, "bf16": 16, "tf32": 32, "f64": 64, "s8": 8, "u8": 8, "e4m3": 8, "e5m2": 8, "f32": 32, "s32": 32}


def left_layout(m: int, k: int, bits: int) -> Fragment:
    """The left operand (m, k): a lane's 32-bit parts hold neighbours along k; rows in groups of 8."""
    e, halves = max(1, 32 // bits), m // 8
    return Fragment((m, k), lambda i, j: (i % 8 * 4 + j // e % 4, (i // 8 + j // (4 * e) * halves) * e + j % e))


def right_layout(k: int, n: int, bits: int) -> Fragment:
    """The right operand (k, n), n = 8."""
    e = max(1, 32 // bits)
    return Fragment((k, n), lambda i, j: (j * 4 + i // e % 4, i // (4 * e) * e + i % e))


def result_layout(m: int, n: int) -> Fragment:
    """The accumulator (m, n), n = 8: pairs along n, rows in groups of 8."""
    return Fragment((m, n), lambda i, j: (i % 8 * 4 + j // 2, i // 8 * 2 + j % 2))


def _assemble(layout: Fragment, lanes: np.ndarray, dtype: Any) -> np.ndarray:
    """The matrix whose elements the lanes hold."""
    matrix = np.empty((*lanes.shape[:-2], math.prod(layout.shape)), dtype)
    matrix[..., layout.inverse().T] = lanes.astype(dtype)
    return matrix.reshape(*lanes.shape[:-2], *layout.shape)


def _tf32(values: np.ndarray) -> np.ndarray:
    """float32 rounded to 10 bits of mantissa, ties away from zero."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = ((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)
    return np.where(np.isfinite(values), rounded, values)


def _product_model(layouts: Sequence[Fragment], a_type: str, b_type: str, kind: str) -> Model:
    """accumulator + left @ right. Sums of floats are formed in float64 and rounded once."""
    c_layout, a_layout, b_layout = layouts

    def exact(values: np.ndarray, ptx: str) -> np.ndarray:
        return _tf32(values) if ptx == "tf32" else values

    def model(c: np.ndarray, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray]:
        wide = np.int64 if kind == "s32" else np.float64
        with np.errstate(all="ignore"):
            left, right = _assemble(a_layout, exact(a, a_type), wide), _assemble(b_layout, exact(b, b_type), wide)
            total = _assemble(c_layout, c, wide) + left @ right
            return (total.reshape(*c.shape[:-2], -1)[..., c_layout.inverse().T].astype(c.dtype),)

    return model


def _registers(ptx: str, elements: int) -> int:
    """Registers of the instruction's text that hold so many elements of one lane."""
    return elements * _BITS[ptx] // max(32, _BITS[ptx])


def _product_code(function: str, mnemonic: str, counts: Sequence[int], types: Sequence[str]) -> str:
    """The C++ function around one mma instruction: (accumulator, left, right) by address."""
    c_type, a_type, b_type = types
    (c_name, c_letter), names, start = _CONSTRAINT[c_type], [], 0
    for count in counts:
        names.append("{" + ", ".join(f"%{start + k}" for k in range(count)) + "}")
        start += count
    outputs = ", ".join(f'"+{c_letter}"(C[{k}])' for k in range(counts[0]))
    inputs, lines = [], []
    for letter, ptx, count in (("A", a_type, counts[1]), ("B", b_type, counts[2])):
        word, constraint = ("double", "d") if ptx == "f64" else ("float" if ptx == "tf32" else "uint32_t", "r")
        lines.append(f"  const {word}* {letter} = (const {word}*){letter.lower()};")
        value = (lambda k, x=letter: f"tl::to_tf32({x}[{k}])") if ptx == "tf32" else (lambda k, x=letter: f"{x}[{k}]")
        inputs += [f'"{constraint}"({value(k)})' for k in range(count)]
    text = f"{mnemonic} {names[0]}, {names[1]}, {names[2]}, {names[0]};"
    assembly = [f'  asm volatile("{text}"', f"      : {outputs}", f"      : {', '.join(inputs)});"]
    body = "\n".join([f"  {c_name}* C = ({c_name}*)c;", *lines, *assembly])
    return f"__device__ __forceinline__ void {function}(void* c, const void* a, const void* b) {{\n{body}\n}}\n"


# Rounding to tf32 is a helper of the functions that need it; defined once however many of them a program uses.
TF32_HELPER = """#ifndef TL_TO_TF32
#define TL_TO_TF32
namespace tl {
__device__ __forceinline__ uint32_t to_tf32(float x) {
  uint32_t r;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(x));
  return r;
}
}  // namespace tl
#endif
"""


@functools.cache
def product(a_dtype: str, b_dtype: str, accumulator: str) -> Instruction | None:
    """The matrix product for element types of left, right and accumulator, or None if there is none."""
    a_type, b_type, c_type = _PTX_TYPE.get(a_dtype), _PTX_TYPE.get(b_dtype), _ACCUMULATOR.get(accumulator)
    if a_type is None or b_type is None or c_type is None:
        return None
    bits = _BITS[a_type]
    small = {"s8": "s32", "u8": "s32", "e4m3": "f32", "e5m2": "f32"}
    allowed = {"f16": ("f16", "f32"), "bf16": ("f32",), "tf32": ("f32",), "f64": ("f64",)}.get(a_type, (small.get(a_type),))
    mixed = a_type != b_type and not (a_type in small and b_type in small and small[a_type] == small[b_type])
    if c_type not in allowed or mixed:
        return None
    m, n, k = (8, 8, 4) if a_type == "f64" else (16, 8, 256 // bits)
    layouts = result_layout(m, n), left_layout(m, k, bits), right_layout(k, n, bits)
    elements = [m * n // WARP, m * k // WARP, k * n // WARP]
    types = (c_type, a_type, b_type)
    counts = [_registers(t, e) for t, e in zip(types, elements, strict=True)]
    name = f"mma.m{m}n{n}k{k}.{a_type}.{b_type}.{c_type}"
    function = name.replace(".", "_")
    mnemonic = f"mma.sync.aligned.m{m}n{n}k{k}.row.col.{c_type}.{a_type}.{b_type}.{c_type}"
    operands = tuple(
        Operand(role, REGISTER, e * _BITS[t] // 8, d, layout)
        for role, e, t, d, layout in zip("urr", elements, types, (accumulator, a_dtype, b_dtype), layouts, strict=True)
    )
    code = (TF32_HELPER if a_type == "tf32" else "") + _product_code(function, mnemonic, counts, types)
    architecture = 89 if a_type in ("e4m3", "e5m2") else 80
    return Instruction(name, operands, function, code, _product_model(layouts, a_type, b_type, c_type), architecture, (m, n, k))


# Float32 operands as the sum of two tf32 numbers: the upper bits, and what they leave, rounded. The product of both lower parts is below
# the precision of float32 and left out. Corrections that are not finite belong to operands that are not, or that cancel to nothing.
_SPLIT_CODE = """__device__ __forceinline__ void split_tf32(float x, uint32_t& high, uint32_t& low) {
  high = __float_as_uint(x) & 0xffffe000u;
  float upper = __uint_as_float(high);
  low = tl::to_tf32(upper == x ? 0.0f : x - upper);
}
__device__ __forceinline__ void FUNCTION(void* c, const void* a, const void* b) {
  const float* A = (const float*)a;
  const float* B = (const float*)b;
  float* C = (float*)c;
  float correction[4] = {0.0f, 0.0f, 0.0f, 0.0f};
  uint32_t high_a[4], low_a[4], high_b[2], low_b[2];
#pragma unroll
  for (int k = 0; k < 4; ++k) split_tf32(A[k], high_a[k], low_a[k]);
#pragma unroll
  for (int k = 0; k < 2; ++k) split_tf32(B[k], high_b[k], low_b[k]);
  ONE(correction, low_a, high_b);
  ONE(correction, high_a, low_b);
  ONE(c, high_a, high_b);
#pragma unroll
  for (int k = 0; k < 4; ++k) C[k] += fabsf(correction[k]) < __int_as_float(0x7f800000) ? correction[k] : 0.0f;
}
"""


@functools.cache
def split_product() -> Instruction:
    """float32 by float32 in the precision of float32: three products of tf32 numbers (Ootomo and Yokota, "Recovering single precision
    accuracy from Tensor Cores", 2022)."""
    one = product("float32", "float32", "float32")
    assert one is not None
    name = one.name.replace("tf32.tf32", "tf32x3")
    function = name.replace(".", "_")
    code = one.code.replace("tl::to_tf32(A[", "(A[").replace("tl::to_tf32(B[", "(B[").replace("const float*", "const uint32_t*")
    code = code.replace(one.function, f"{function}_part") + _SPLIT_CODE.replace("FUNCTION", function).replace("ONE", f"{function}_part")
    layouts = [o.layout for o in one.operands if o.layout is not None]

    def model(c: np.ndarray, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray]:
        """The two corrections are one sum, rounded, and added if it is finite."""
        (high_a, low_a), (high_b, low_b) = _split(a), _split(b)
        plain = _product_model(layouts, "f32", "f32", "f32")
        (correction,) = plain(np.zeros_like(c), low_a, high_b)
        (correction,) = plain(correction, high_a, low_b)
        (total,) = plain(c, high_a, high_b)
        with np.errstate(all="ignore"):
            return (total + np.where(np.isfinite(correction), correction, np.float32(0)),)

    return replace(one, name=name, function=function, code=code, model=model)


def _split(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(upper, lower) parts of float32 numbers."""
    high = (np.ascontiguousarray(values, np.float32).view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
    with np.errstate(all="ignore"):
        return high, _tf32(np.where(high == values, np.float32(0), values - high).astype(np.float32))


# ---------------------------------------------------------------- 8 x 8 matrices between shared memory and registers
def _words(rows: np.ndarray) -> np.ndarray:
    """(..., elements, lanes) of any type as (..., 16-bit words, lanes)."""
    return np.ascontiguousarray(rows.swapaxes(-1, -2)).view(np.uint16).swapaxes(-1, -2)


def _elements(words: np.ndarray, dtype: Any) -> np.ndarray:
    return np.ascontiguousarray(words.swapaxes(-1, -2).astype(np.uint16)).view(dtype).swapaxes(-1, -2)


def _matrix_places(count: int, transposed: bool) -> tuple[np.ndarray, np.ndarray]:
    """For word w of lane l, arrays (2 * count, 32): the lane that names its row, and its column in that row."""
    word, lane = np.indices((2 * count, WARP))
    row, column = (lane % 4 * 2 + word % 2, lane // 4) if transposed else (lane // 4, lane % 4 * 2 + word % 2)
    return word // 2 * 8 + row, column


def _load_model(count: int, transposed: bool) -> Model:
    lane, column = _matrix_places(count, transposed)

    def model(destination: np.ndarray, source: np.ndarray) -> tuple[np.ndarray]:
        return (_elements(_words(source)[..., column, lane], destination.dtype),)

    return model


def _store_model(count: int, transposed: bool) -> Model:
    lane, column = _matrix_places(count, transposed)

    def model(destination: np.ndarray, source: np.ndarray) -> tuple[np.ndarray]:
        rows = _words(destination).copy()
        rows[..., column, lane] = _words(source)
        return (_elements(rows, destination.dtype),)

    return model


def _matrix_code(function: str, load: bool, count: int, transposed: bool) -> str:
    suffix = f"sync.aligned.m8n8.x{count}{'.trans' if transposed else ''}.shared.b16"
    if load:
        names = ", ".join(f"%{k}" for k in range(count))
        outputs = ", ".join(f'"=r"(D[{k}])' for k in range(count))
        body = (f"  uint32_t* D = (uint32_t*)d;\n  uint32_t at = (uint32_t)__cvta_generic_to_shared(s);\n"
                f'  asm volatile("ldmatrix.{suffix} {{{names}}}, [%{count}];" : {outputs} : "r"(at) : "memory");')  # fmt: skip
    else:
        names = ", ".join(f"%{k + 1}" for k in range(count))
        inputs = ", ".join(f'"r"(S[{k}])' for k in range(count))
        body = (f"  const uint32_t* S = (const uint32_t*)s;\n  uint32_t at = (uint32_t)__cvta_generic_to_shared(d);\n"
                f'  asm volatile("stmatrix.{suffix} [%0], {{{names}}};" : : "r"(at), {inputs} : "memory");')  # fmt: skip
    return f"__device__ __forceinline__ void {function}(void* d, const void* s) {{\n{body}\n}}\n"


@functools.cache
def load_matrices(count: int, transposed: bool = False) -> Instruction:
    """ldmatrix: 1, 2 or 4 matrices of 8 rows of 16 bytes; lane 8 i + r names row r of matrix i."""
    name = f"ldmatrix.x{count}{'.trans' if transposed else ''}"
    operands = Operand("w", REGISTER, 4 * count), Operand("r", SHARED, 16, lanes=8 * count)
    function = name.replace(".", "_")
    return Instruction(name, operands, function, _matrix_code(function, True, count, transposed), _load_model(count, transposed))


@functools.cache
def store_matrices(count: int, transposed: bool = False) -> Instruction:
    """stmatrix: the inverse of ldmatrix."""
    name = f"stmatrix.x{count}{'.trans' if transposed else ''}"
    operands = Operand("w", SHARED, 16, lanes=8 * count), Operand("r", REGISTER, 4 * count)
    function = name.replace(".", "_")
    return Instruction(name, operands, function, _matrix_code(function, False, count, transposed), _store_model(count, transposed), 90)


# ---------------------------------------------------------------- the table
def _all() -> dict[str, Instruction]:
    half, eight = ("float16", "bfloat16", "float32", "float64"), (("int8", "uint8"), ("float8_e4m3fn", "float8_e5m2"))
    pairs = [(t, t) for t in half] + [(x, y) for kind in eight for x in kind for y in kind]
    found = [product(a, b, c) for a, b in pairs for c in _ACCUMULATOR]
    matrices = [f(n, t) for f in (load_matrices, store_matrices) for n in (1, 2, 4) for t in (False, True)]
    return {i.name: i for i in [*found, split_product(), *matrices] if i is not None}


INSTRUCTIONS: dict[str, Instruction] = _all()
"""Every instruction by the name that `tl.instr` carries."""
