"""The host function as native code, through TVM's LLVM code generator.

In: the function of `host.py`. Out: `HostCode`: a packed function of TVM, and the files that a saved kernel keeps of it.
"""

from __future__ import annotations

import functools
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import InternalError
from ...ir.context import PassContext
from ...ir.dialect import op_name
from ...ir.rewrite import Descend, rewrite
from ...ir.tvm_api import AttrStmt, Call, Evaluate, Expr, IntImm, IRModule, PrimFunc, Stmt, StringImm, tirx, tvm
from ...knobs import knobs
from ...passes.program.solve_symbols import solve_symbols
from ..llvm import host_cpu, linked, llvm_target, llvm_version, load_module, machine_code
from .host import DEVICE, with_total_divisions

_T = tirx.transform
TEXT, OBJECT = "host.ll", "host.so"  # files of a saved kernel
# Optimising takes five times as long as everything else here and saves 0.03 us of a call.
_OPTIONS = {"kind": "llvm", "opt-level": 0}


@dataclass(frozen=True)
class HostCode:
    """function: called with the table's address and the program's arguments. text: LLVM's. shared: the shared object, empty without a
    linker."""

    function: Any
    text: str
    shared: bytes

    def save(self, folder: Path) -> None:
        (folder / TEXT).write_text(self.text, encoding="utf-8")
        if self.shared:
            (folder / OBJECT).write_bytes(self.shared)

    @classmethod
    def load(cls, folder: Path, name: str) -> HostCode:
        shared = (folder / OBJECT).read_bytes() if (folder / OBJECT).exists() else b""
        library = load_module(folder / (OBJECT if shared else TEXT))
        return cls(library[name], (folder / TEXT).read_text(encoding="utf-8"), shared)


def compile_host(func: PrimFunc, ctx: PassContext, memory: str = "cuda") -> HostCode:
    """Compile the host function. memory: where tensors must be: "cuda", or "cpu" to try a function where there is no GPU."""
    name = str(func.attrs["global_symbol"])
    try:
        module = _lowered(with_total_divisions(solve_symbols(func, ctx)), name, memory)
        library = machine_code(module, _host())
        text = str(library.inspect_source("ll"))
    except RuntimeError as error:  # TVM's own class
        raise InternalError(f"TVM refused the host part of {name}: {error}") from error
    with tempfile.TemporaryDirectory(prefix="tilelang-", dir=knobs.tmp_dir) as folder:
        library, shared = linked(library, Path(folder, OBJECT))
    return HostCode(library[name], text, shared)


def host_version() -> str:
    """What the host function depends on besides the program."""
    return f"{llvm_version()} {host_cpu()}"


def _host() -> Any:
    return llvm_target(tuple(sorted({**_OPTIONS, "mcpu": host_cpu()}.items())))


@functools.cache
def _target(memory: str) -> Any:
    """The target whose device MakePackedAPI expects tensors on; its architecture decides nothing."""
    host = _host()
    return tvm.target.Target({"kind": "cuda", "arch": "sm_80"}, host=host) if memory == "cuda" else host.with_host(host)


@functools.cache
def _passes() -> tuple[Any, Any]:
    sequential = tvm.ir.transform.Sequential
    first = sequential([_T.FlattenBuffer(), _T.AnnotateEntryFunc(), _T.SplitHostDevice(), _T.MakePackedAPI(), _T.BF16StorageLegalize()])
    return first, sequential([_T.LowerTVMBuiltin(), _T.LowerIntrin()])


def _lowered(func: PrimFunc, name: str, memory: str) -> Any:
    first, second = _passes()
    module = first(_T.BindTarget(_target(memory))(IRModule({name: func})))
    (packed,) = module.functions.values()
    return second(IRModule({name: _on_host(packed).with_attr("target", _host())}))


def _on_host(func: PrimFunc) -> PrimFunc:
    """Gives the tensors' device to who asks for it. For TVM the function is one of the processor: frames are its memory, and no device
    is switched to."""
    device: list[Expr] = []

    def attribute(node: Any, descend: Descend) -> Stmt:
        if node.attr_key == "device_id":
            device.append(node.value)
        return descend(node.body) if node.attr_key in ("device_id", "device_type") else descend.children(node)

    def evaluate(node: Any, descend: Descend) -> Stmt:
        if _calls(node.value, "tirx.tvm_call_packed", "__tvm_set_device"):
            return Evaluate(IntImm("int32", 0))
        return descend.children(node)

    def call(node: Any, descend: Descend) -> Expr:
        return device[0] if _calls(node, "tirx.call_extern", DEVICE) else descend.children(node)

    body = rewrite(func.body, {AttrStmt: attribute, Evaluate: evaluate, Call: call})
    for key, value in (("device_id", 0), ("device_type", 1)):  # kDLCPU
        body = AttrStmt(StringImm("default"), key, IntImm("int32", value), body)
    return func.with_body(body)


def _calls(value: Any, op: str, name: str) -> bool:
    return isinstance(value, Call) and op_name(value) == op and isinstance(value.args[0], StringImm) and str(value.args[0].value) == name
