"""What is compared: a `Row` is one piece of work with its sizes; a `Side` is one program that does it.

A side is built for a configuration (tile sizes and the like), then bound to operands, which gives calls without arguments. The same rows
exist in every process; what a side needs (this package, the public wheel of the same name, Triton) is imported when it is built.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

Config = dict[str, Any]
OURS, WHEEL, TRITON = "ours", "TileLang", "Triton"
ROTATION_BYTES, MOST_SETS = 256 << 20, 32  # operands rotate over several times the L2 cache (60 MB on an H200)


@dataclass(frozen=True)
class Operands:
    """One set of tensors of a row: what is read, what is written. A side may return its outputs instead of writing these."""

    inputs: tuple[torch.Tensor, ...]
    outputs: tuple[torch.Tensor, ...]

    def bytes(self) -> int:
        return sum(t.numel() * t.element_size() for t in (*self.inputs, *self.outputs))


@dataclass(frozen=True)
class Part:
    """Expected values: of output number `output` at `index` (all of it by default), in float64."""

    want: torch.Tensor
    output: int = 0
    index: Any = ...


@dataclass(frozen=True)
class Side:
    """build(config): the compiled program. bind(program, operands): a call; it returns its outputs, or None where it wrote them.
    configs: what may be tried, the first one by default. process: which process runs it: "" or `WHEEL`. checked: does the row's work
    (a copy of the same bytes does not). compiled: has kernels that are better compiled in parallel before anything is timed."""

    build: Callable[[Config], Any]
    bind: Callable[[Any, Operands], Callable[[], Any]]
    configs: tuple[Config, ...] = ({},)
    process: str = ""
    checked: bool = True
    compiled: bool = False


@dataclass(frozen=True)
class Row:
    """name: unique. work: FLOP or bytes of one call (0: the time itself is the result). make: one set of operands with random values.
    reference: the expected parts, computed in float64 from the inputs. tolerance: largest relative error of a row (see `error_of`).
    clock: "device" (events around calls on the device), "host" (time the caller spends in a call), "compile" (a build and one call)."""

    name: str
    family: str
    work: float
    unit: str
    make: Callable[[], Operands]
    reference: Callable[[tuple[torch.Tensor, ...]], tuple[Part, ...]]
    tolerance: float
    sides: Mapping[str, Side]
    clock: str = "device"
    against: tuple[str, ...] = field(default=())  # sides that the ratio is taken to; () = all that are not ours

    def value(self, ms: float) -> float:
        """What is printed for a time: TFLOP/s, GB/s, or the time in the row's own unit."""
        scale = {"TFLOP/s": 1e-9, "GB/s": 1e-6}
        if self.unit in scale:
            return self.work / ms * scale[self.unit]
        return ms * {"us": 1e3, "s": 1e-3}[self.unit]

    def rivals(self) -> tuple[str, ...]:
        return self.against or tuple(label for label in self.sides if not label.startswith(OURS))


def sets_of(row: Row) -> list[Operands]:
    """As many sets of operands as make the caches useless."""
    first = row.make()
    count = min(MOST_SETS, max(1, math.ceil(ROTATION_BYTES / first.bytes())))
    return [first, *(row.make() for _ in range(count - 1))]


def error_of(operands: Operands, call: Callable[[], Any], expected: tuple[Part, ...]) -> float:
    """The largest relative error of a row (the last dimension) after one call: |got - want| / (|want| + mean |want| of the rows), with the
    Euclidean norm; infinite where a value is missing."""
    for out in operands.outputs:
        out.fill_(float("nan"))
    returned = call()
    outputs = operands.outputs if returned is None else returned if isinstance(returned, tuple) else (returned,)
    torch.cuda.synchronize()
    worst = 0.0
    for part in expected:
        got = outputs[part.output][part.index].reshape(part.want.shape).double()
        size = part.want.norm(dim=-1)
        error = float(((got - part.want).norm(dim=-1) / (size + size.mean())).max())
        worst = max(worst, math.inf if math.isnan(error) else error)
    return worst


def values(*shape: int, dtype: torch.dtype = torch.bfloat16, scale: float = 1.0) -> torch.Tensor:
    """Normal random values on the device; types too short for the generator are rounded from float32."""
    return (torch.randn(*shape, device="cuda") * scale).to(dtype)
