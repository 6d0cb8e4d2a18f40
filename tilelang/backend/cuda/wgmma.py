"""Warpgroup products as C++: each `tl.wgmma` becomes a call of a function around one `wgmma.mma_async`.

In: a `tl.wgmma` call. Out: one statement; the definition of the function is noted, to stand once before the kernels. An operand in
shared memory is named by its descriptor (PTX ISA, "Matrix descriptor"): address, strides, swizzling mode. It is the same for all threads of
a warpgroup, and computed from the warpgroup's number: from the thread's it would pass through registers of every thread.
"""

from __future__ import annotations

from collections.abc import Callable

from ...errors import InternalError
from ...ir.dialect import attr
from ...ir.rewrite import substitute, uses
from ...ir.tvm_api import Call, TensorRegion, const, dtype_of, tirx
from ..gpu.wgmma import WARPGROUP, M, Matrix, Product, product
from .cpp_types import bytes_of
from .expressions import ADD
from .memory import offset_of
from .printer import INDENT, Printer

UNIT = 16  # bytes of an address in a descriptor
_MODE = {128: 1, 64: 2, 32: 3, 0: 0}  # the descriptor's bits 62 and 63, by bytes of the swizzle
_C_TYPE = {"f32": ("float", "f"), "f16": ("uint32_t", "r"), "s32": ("int32_t", "r")}


def wgmma_rules(printer: Printer) -> dict[str, Callable[[Call], None]]:
    """How the statements about warpgroup products are printed."""

    def helper(text: str) -> None:
        printer.o.needs.add("wgmma.cuh")
        printer.line(f"tl::{text};")

    def product(call: Call) -> None:
        printer.o.needs.add("wgmma.cuh")
        printer.line(wgmma_call(call, printer))

    def fence(call: Call) -> None:
        """Registers that products read are computed before."""
        for block in call.args:
            words = int(block.region[0].extent) * bytes_of(dtype_of(block)) // 4
            helper(f"settle<{words}>((int32_t*){printer.o.region_address(block)})")
        helper("wgmma_fence()")

    def wait(call: Call) -> None:
        """Then the registers that the wait makes safe to use."""
        helper(f"wgmma_wait<{int(call.args[0])}>()")
        for block in call.args[1:]:
            helper(f"settle<{int(block.region[0].extent)}>({printer.o.region_address(block)})")

    return {"tl.wgmma": product, "tl.wgmma_fence": fence, "tl.wgmma_commit": lambda c: helper("wgmma_commit()"),
            "tl.wgmma_wait": wait}  # fmt: skip


def wgmma_call(call: Call, printer: Printer) -> str:
    """The statement of one product."""
    o = printer.o
    record = product(str(attr(call, "name")))
    if record is None:
        raise InternalError(f"instruction {attr(call, 'name')} has no record")
    c, a, b, keep = call.args
    a_matrix, b_matrix = attr(call, "a_matrix"), Matrix.parse(str(attr(call, "b_matrix")))
    left = None if a_matrix is None else Matrix.parse(str(a_matrix))
    name, code = _function(record, None if left is None else left.major, b_matrix.major)
    o.definitions[name] = code
    a_text = o.region_address(a) if left is None else _descriptor(a, left, printer)
    return f"{name}({o.region_address(c)}, {a_text}, {_descriptor(b, b_matrix, printer)}, {o.e.text(keep)});"


def _descriptor(block: TensorRegion, matrix: Matrix, printer: Printer) -> str:
    text = f"tl::matrix<{matrix.leading}, {matrix.stride}, {_MODE[matrix.swizzle]}>"
    start = printer.shared.get(block.source)
    if start is None or printer.static_arrays:  # not known ahead
        return f"{text}(tl::shared_units({printer.o.region_address(block)}))"
    offset = offset_of(block.source, [r.min for r in block.region])
    thread, dtype = printer.kernel.threads[0][0], dtype_of(offset)
    if uses(offset, thread) and all(extent == 1 for _, extent in printer.kernel.threads[1:]):
        only = printer.only_warpgroup
        offset = substitute(offset, {thread: (printer.warpgroup if only is None else const(only, "int32")) * const(WARPGROUP, "int32")})
        if only is None:
            number, index = (printer.e.names.of(v) for v in (printer.warpgroup, thread))
            printer.prologue[f"{INDENT}const int {number} = tl::warpgroup_of({index});"] = None
    printer.prologue[f"{INDENT}tl::check_shared_start(smem);"] = None
    units = offset * const(bytes_of(dtype_of(block)), dtype)
    at = printer.o.e.facts.simplify(tirx.floordiv(units, const(UNIT, dtype)) + const(start // UNIT, dtype))
    return f"{text}(tl::SHARED_START + {printer.o.e.text(at, ADD + 1)})"


def _function(record: Product, a_major: str | None, b_major: str) -> tuple[str, str]:
    """The C++ function of a product, and its name. a_major: "k" or "mn" of an A in shared memory, None for registers."""
    c_type, constraint = _C_TYPE[record.types[0]]
    count = M * record.n // WARPGROUP // (2 if record.types[0] == "f16" else 1)
    majors = ("r" if a_major is None else a_major, b_major)
    name = f"wgmma_m{M}n{record.n}k{record.k}_{'_'.join(record.types)}_{'_'.join(majors)}"
    a_words = 4 if a_major is None else 1
    places = [f"%{k}" for k in range(count + a_words + 2)]
    left = "{" + ", ".join(places[count : count + 4]) + "}" if a_major is None else places[count]
    scale = "" if record.types[0] == "s32" else ", 1, 1"
    flips = [major == "mn" for major in ([a_major] if a_major is not None else []) + [b_major]]
    flip = "".join(f", {int(f)}" for f in flips) if record.transposes() else ""
    text = f"{record.name} {{{', '.join(places[:count])}}}, {left}, {places[count + a_words]}, p{scale}{flip};"
    outputs = ", ".join(f'"+{constraint}"(C[{k}])' for k in range(count))
    inputs = [f'"r"(A[{k}])' for k in range(4)] if a_major is None else ['"l"(a)']
    inputs += ['"l"(b)', '"r"((int)keep)']
    lines = [
        f"__device__ __forceinline__ void {name}(void* c, {'const void*' if a_major is None else 'uint64_t'} a, uint64_t b, bool keep) {{",
        f"  {c_type}* C = ({c_type}*)c;",
        *(["  const uint32_t* A = (const uint32_t*)a;"] if a_major is None else []),
        f'  asm volatile("{{ .reg .pred p; setp.ne.b32 p, {places[-1]}, 0; {text} }}"',
        f"      : {outputs}",
        f"      : {', '.join(inputs)});",
        "}",
    ]
    return name, "\n".join(lines) + "\n"
