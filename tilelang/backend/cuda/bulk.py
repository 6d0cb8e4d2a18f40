"""Bulk tensor copies as C++, and the tensor maps that they need.

In: `tl.tma_load`, `tl.tma_store` and what they wait for. Out: lines, and for each distinct (tensor, box, swizzle) of a kernel a
`TensorMap`: one parameter of the kernel, which the host function encodes at each launch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...ir.dialect import attr, op_name
from ...ir.rewrite import walk
from ...ir.tvm_api import Call, TensorRegion, Var, dtype_of
from .cpp_types import bytes_of
from .printer import Printer

MAP_TYPE = "tl::tensor_map"
BULK_HINTS = ("fence_proxy_async",)  # of the program's own synchronisation, those that mean something beside bulk copies


@dataclass(frozen=True)
class TensorMap:
    """A parameter of type `MAP_TYPE`. tensor: the buffer that it describes. box: extents in elements, by dimension of the tensor. swizzle:
    0, 32, 64 or 128 bytes. size: bytes of an element. adds: are boxes added, as float32, to what is there?"""

    name: str
    tensor: Var
    box: tuple[int, ...]
    swizzle: int
    size: int
    adds: bool = False


class TensorMaps:
    """The maps of one kernel, in the order in which the text needs them."""

    def __init__(self, printer: Printer) -> None:
        self.printer = printer
        self._of: dict[tuple[Var, tuple[int, ...], int, bool], TensorMap] = {}
        self.in_kernel = False  # does it hold bulk copies? Without any a copy is complete when it returns
        self.loads = False
        walk(printer.kernel.body, {Call: self._note})

    def _note(self, call: Call) -> None:
        self.loads = self.loads or op_name(call) == "tl.tma_load"
        self.in_kernel = self.in_kernel or op_name(call) in ("tl.tma_load", "tl.tma_store", "tl.wgmma")

    @property
    def maps(self) -> tuple[TensorMap, ...]:
        return tuple(self._of.values())

    def name(self, block: TensorRegion, swizzle: int, adds: bool = False) -> str:
        box = tuple(int(r.extent) for r in block.region)
        key = block.source, box, swizzle, adds
        if key not in self._of:
            name = self.printer.e.names.fresh(f"{self.printer.e.names.of(block.source)}_map", everywhere=True)
            self._of[key] = TensorMap(name, block.source, box, swizzle, bytes_of(dtype_of(block)), adds)
        return self._of[key].name

    def rules(self) -> dict[str, Callable[[Call], None]]:
        """How the statements about bulk copies are printed."""
        return {
            "tl.tma_load": self._load, "tl.tma_store": self._store, "tl.bulk_commit": lambda c: self._call("bulk_commit()"),
            "tl.bulk_wait": self._wait, "tl.fence_proxy_async": lambda c: self._call("fence_proxy_async()"),
            "tl.mbarrier_expect_tx": self._expect,
        }  # fmt: skip

    def hint(self, what: str) -> None:
        """The program's own fence."""
        if self.in_kernel:
            self._call(f"{what}()")

    def barriers_started(self, clustered: bool) -> None:
        """The thread that has initialised mbarriers: bulk loads see it, too, and other blocks of the cluster."""
        if self.loads or clustered:
            self._call("fence_barrier_init()")

    def prologue(self) -> list[str]:
        """Lines for the beginning of the kernel: the maps are fetched before they are needed."""
        if not self.maps:
            return []
        fetched = [f"    tl::prefetch({m.name});" for m in self.maps]
        return ["  if ((threadIdx.x | threadIdx.y | threadIdx.z) == 0) {", *fetched, "  }"]

    def _expect(self, call: Call) -> None:
        """Bytes count in kernels with bulk loads; where every copy is complete when it returns there are none to wait for."""
        barrier, arrives = self.printer.o.region_address(call.args[0]), bool(attr(call, "arrive", False))
        if self.loads:
            self._call(f"mbarrier_{'arrive_' if arrives else ''}expect_tx({barrier}, {self.printer.e.text(call.args[1])})")
        elif arrives:
            self._call(f"mbarrier_arrive({barrier})")

    def _call(self, text: str) -> None:
        self.printer.o.needs.add("tma.cuh")
        self.printer.line(f"tl::{text};")

    def _load(self, call: Call) -> None:
        tile, tensor, barrier, *mask = call.args
        o = self.printer.o
        operands = [o.region_address(tile), self.name(tensor, int(attr(call, "swizzle", 0))), o.region_address(barrier)]
        operands += [self.printer.e.text(m) for m in mask]
        self._call(f"tma_{'multicast' if mask else 'load'}({', '.join([*operands, *self._corner(tensor)])})")

    def _store(self, call: Call) -> None:
        tile, tensor = call.args
        adds = bool(attr(call, "add", False))
        operands = [self.printer.o.region_address(tile), self.name(tensor, int(attr(call, "swizzle", 0)), adds)]
        self._call(f"tma_{'add' if adds else 'store'}({', '.join([*operands, *self._corner(tensor)])})")

    def _corner(self, tensor: TensorRegion) -> list[str]:
        """The coordinates of the box's first element, innermost first; the instruction takes 32 bits."""
        texts = [(self.printer.e.text(r.min), dtype_of(r.min)) for r in reversed(list(tensor.region))]
        return [text if dtype == "int32" else f"(int)({text})" for text, dtype in texts]

    def _wait(self, call: Call) -> None:
        self._call(f"bulk_wait{'_read' if attr(call, 'read', False) else ''}<{int(call.args[0])}>()")


__all__ = ["BULK_HINTS", "MAP_TYPE", "TensorMap", "TensorMaps"]
