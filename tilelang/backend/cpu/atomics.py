"""Atomic updates as small LLVM functions, linked into the program's module and inlined.

In: names of updates. Out: LLVM text, and the calls of its functions. Blocks run on several cores, so updates of global
memory are real atomic instructions; memory of one block is only touched by the core that runs it: plain instructions.
16-bit floats pass through the calls as float32.
"""

from __future__ import annotations

from dataclasses import dataclass

INT_OPERATION = {"add": "add", "max": "max", "min": "min", "or": "or", "and": "and", "xor": "xor", "exch": "xchg"}
FLOAT_OPERATION = {"add": "fadd", "max": "fmax", "min": "fmin", "exch": "xchg"}
LLVM_TYPE = {"float32": "float", "float64": "double", "float16": "half", "bfloat16": "bfloat"}


@dataclass(frozen=True)
class Update:
    """kind: add max min or and xor exch load store. dtype: of the element. shared: by several cores."""

    kind: str
    dtype: str
    shared: bool

    @property
    def name(self) -> str:
        return f"tilelang_{'atomic' if self.shared else 'block'}_{self.kind}_{self.dtype}"

    @property
    def is_float(self) -> bool:
        return self.dtype.startswith(("float", "bfloat"))

    @property
    def bits(self) -> int:
        return 8 if self.dtype == "bool" else int("".join(c for c in self.dtype if c.isdigit()))

    @property
    def half(self) -> bool:
        return self.is_float and self.bits == 16

    @property
    def supported(self) -> bool:
        if self.is_float:
            return self.dtype in LLVM_TYPE and (self.kind in FLOAT_OPERATION or self.kind in ("load", "store"))
        return self.bits in (8, 16, 32, 64)

    def text(self) -> str:
        """The function: takes (pointer, value) and returns the previous value (a load ignores the value)."""
        value = "float" if self.half else LLVM_TYPE.get(self.dtype, f"i{self.bits}")
        body = self._half() if self.half else self._load_store(value) if self.kind in ("load", "store") else self._word(value)
        return f"define {value} @{self.name}(ptr %p, {value} %v) alwaysinline nounwind {{\n{body}\n}}\n"

    def _order(self) -> tuple[str, str]:
        return ("atomic ", " seq_cst") if self.shared else ("", "")

    def _load_store(self, value: str) -> str:
        atomic, order = self._order()
        size = self.bits // 8
        if self.kind == "load":
            return f"  %r = load {atomic}{value}, ptr %p{order}, align {size}\n  ret {value} %r"
        return f"  store {atomic}{value} %v, ptr %p{order}, align {size}\n  ret {value} %v"

    def _word(self, value: str) -> str:
        operation = (FLOAT_OPERATION if self.is_float else INT_OPERATION)[self.kind]
        if operation in ("max", "min") and self.dtype.startswith("u"):
            operation = f"u{operation}"
        size = self.bits // 8
        if self.shared:
            return f"  %r = atomicrmw {operation} ptr %p, {value} %v seq_cst, align {size}\n  ret {value} %r"
        load = f"  %r = load {value}, ptr %p, align {size}\n"
        return f"{load}{self._combine(value, '%r', '%v', '%n')}  store {value} %n, ptr %p, align {size}\n  ret {value} %r"

    def _combine(self, value: str, old: str, new: str, out: str) -> str:
        """Instructions that compute `out` from the old element and the operand."""
        if self.kind == "exch":
            return f"  {out} = select i1 true, {value} {new}, {value} {new}\n"
        if self.kind in ("max", "min"):
            greater = self.kind == "max"
            if self.is_float:  # an operand that is NaN loses, as in the atomic instructions
                test = f"fcmp {'ugt' if greater else 'ult'} {value} {new}, {old}"
                guard = f"  %isnan = fcmp uno {value} {new}, {new}\n"
                return f"{guard}  %better = {test}\n  %best = select i1 %better, {value} {new}, {value} {old}\n" + (
                    f"  {out} = select i1 %isnan, {value} {old}, {value} %best\n"
                )
            sign = "u" if self.dtype.startswith("u") else "s"
            test = f"icmp {sign}{'gt' if greater else 'lt'} {value} {new}, {old}"
            return f"  %better = {test}\n  {out} = select i1 %better, {value} {new}, {value} {old}\n"
        operation = "fadd" if self.is_float else INT_OPERATION[self.kind]
        return f"  {out} = {operation} {value} {old}, {new}\n"

    def _half(self) -> str:
        """16-bit floats: a compare-and-swap loop on the bits around float32 arithmetic, rounded to nearest even."""
        atomic, order = self._order()
        widen, narrow = (_widen_bfloat, _narrow_bfloat) if self.dtype == "bfloat16" else (_widen_half, _narrow_half)
        if self.kind == "load":
            return f"  %b = load {atomic}i16, ptr %p{order}, align 2\n{widen('%b', '%r')}  ret float %r"
        if self.kind == "store":
            return f"{narrow('%v', '%b')}  store {atomic}i16 %b, ptr %p{order}, align 2\n  ret float %v"
        update = f"{widen('%b', '%r')}{self._combine('float', '%r', '%v', '%n')}{narrow('%n', '%nb')}"
        if not self.shared:
            return f"  %b = load i16, ptr %p, align 2\n{update}  store i16 %nb, ptr %p, align 2\n  ret float %r"
        return (
            "entry:\n  %first = load atomic i16, ptr %p seq_cst, align 2\n  br label %again\nagain:\n"
            "  %b = phi i16 [ %first, %entry ], [ %seen, %again ]\n"
            f"{update}  %pair = cmpxchg ptr %p, i16 %b, i16 %nb seq_cst seq_cst, align 2\n"
            "  %seen = extractvalue { i16, i1 } %pair, 0\n  %ok = extractvalue { i16, i1 } %pair, 1\n"
            "  br i1 %ok, label %done, label %again\ndone:\n  ret float %r"
        )


def _widen_half(bits: str, out: str) -> str:
    return f"  %wh = bitcast i16 {bits} to half\n  {out} = fpext half %wh to float\n"


def _narrow_half(value: str, out: str) -> str:
    return f"  %nh = fptrunc float {value} to half\n  {out} = bitcast half %nh to i16\n"


def _widen_bfloat(bits: str, out: str) -> str:
    return f"  %wz = zext i16 {bits} to i32\n  %ws = shl i32 %wz, 16\n  {out} = bitcast i32 %ws to float\n"


def _narrow_bfloat(value: str, out: str) -> str:
    return (
        f"  %nw = bitcast float {value} to i32\n  %nl = lshr i32 %nw, 16\n  %nb0 = and i32 %nl, 1\n  %nb1 = add i32 %nb0, 32767\n"
        f"  %nb2 = add i32 %nw, %nb1\n  %nb3 = lshr i32 %nb2, 16\n  %nnan = fcmp uno float {value}, {value}\n"
        f"  %nb4 = select i1 %nnan, i32 32704, i32 %nb3\n  {out} = trunc i32 %nb4 to i16\n"
    )
