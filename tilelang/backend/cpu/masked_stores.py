"""Masked stores of a constant mask that LLVM's X86 backend stores wrongly, rewritten in LLVM's text.

LLVM's vectoriser makes masked stores from guarded loops; unrolled, their masks are constants. With AVX-512, LLVM 22 joins such a
store with the truncation of its value, and then turns a mask with a single lane into a scalar store *of the untruncated value*: it
overwrites the neighbours of the element (https://github.com/llvm/llvm-project/pull/179853 says and mends it in later releases).
So such lanes become scalar stores of their own here, where the value still has its type. The meaning of the text stays the same.
"""

from __future__ import annotations

import itertools
import math
import re

_STORE = re.compile(
    r"^ *(?:tail )?call void @llvm\.masked\.store\.[\w.]+\("
    r"<(?P<lanes>\d+) x (?P<type>i\d+)> (?P<value>%[-\w.$]+), ptr(?: align (?P<align>\d+))? (?P<address>[%@][-\w.$]+), "
    r"<\d+ x i1> <(?P<mask>i1 [^>]*)>\)(?P<rest>.*)$",
    re.MULTILINE,
)
_SMALLEST_PART = 128  # bits of the smallest register: LLVM halves what is too wide for the machine, down to this


def mend(text: str) -> str:
    """The text without masked stores of one lane, or the same text where there are none. Only integers are ever truncated."""
    numbers = itertools.count()
    return _STORE.sub(lambda store: _mended(store, numbers), text)


def _mended(store: re.Match[str], numbers: itertools.count[int]) -> str:
    mask = [lane.split()[-1] == "true" for lane in store["mask"].split(",")]
    bits = int(store["type"][1:])
    alone: list[int] = []
    while (lane := _lonely_lane(mask, bits)) is not None:
        alone.append(lane)
        mask[lane] = False
    if not alone:
        return store[0]
    lines = [line for lane in alone for line in _scalar_store(store, lane, bits // 8, next(numbers))]
    if any(mask):
        lanes = ", ".join("i1 true" if kept else "i1 false" for kept in mask)
        lines.append(store[0].replace(store["mask"], lanes))
    return "\n".join(lines)


def _lonely_lane(mask: list[bool], bits: int) -> int | None:
    """A lane that stands alone in the vector, or in a part of it that LLVM may store by itself."""
    size = len(mask)
    while size * bits >= _SMALLEST_PART or size == len(mask):
        for start in range(0, len(mask), size):
            lanes = [start + i for i, kept in enumerate(mask[start : start + size]) if kept]
            if len(lanes) == 1:
                return lanes[0]
        size //= 2
    return None


def _scalar_store(store: re.Match[str], lane: int, size: int, number: int) -> list[str]:
    kind, name = store["type"], f"%tl.lane{number}"
    align = math.gcd(int(store["align"] or 1), lane * size) if lane else int(store["align"] or 1)
    return [
        f"  {name} = extractelement <{store['lanes']} x {kind}> {store['value']}, i64 {lane}",
        f"  {name}.at = getelementptr i8, ptr {store['address']}, i64 {lane * size}",
        f"  store {kind} {name}, ptr {name}.at, align {align}{store['rest']}",
    ]
