"""From the final program to an artifact: text, the host function, machine code where a device is known, a launcher.

In: a `PrimFunc` at THREADS level. Out: an `Artifact`, whose entry compiles at the first call what is not compiled yet. A saved artifact is
one JSON file (texts, launch facts), and beside it the machine code and the compiled host function.
"""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...ir.access import view_roots
from ...ir.context import PassContext
from ...ir.dialect import KERNEL_CLUSTER
from ...ir.kernel import KernelRegion, map_kernels
from ...ir.tvm_api import PrimFunc, Stmt, Var
from ...passes.pipeline.tma_boxes import KEY_OFF
from ...target.limits import architecture, has_clusters
from ..base import Artifact, KernelResources
from . import hooks, toolchain
from .host import host_function, takes_tensors
from .host_code import HostCode, compile_host, host_version
from .host_values import pass_values
from .launch import Launcher, machine_code
from .program import CudaProgram, KernelText, compile_flags, print_kernel, source_text, written_buffers

PROGRAM = "program.json"
KEY_INDEPENDENT = "tl.disable_dependent_launch"


def target_arch(ctx: PassContext) -> str:
    """The architecture that the target names, or "" where each device is asked when it is used."""
    named = ctx.target.option("arch")
    return "" if named in ("", "auto", "native") else toolchain.checked_arch(named)


def may_depend(ctx: PassContext) -> bool:
    """May kernels begin before those in front of them have ended, and wait by themselves (PTX ISA, griddepcontrol: sm_90 and later)?"""
    return has_clusters(ctx.target) and not ctx.flag(KEY_INDEPENDENT)


def print_program(func: PrimFunc, ctx: PassContext, ready: Callable[[CudaProgram], None] | None = None) -> tuple[CudaProgram, PrimFunc]:
    """The program as CUDA source, and its host function. ready: called as soon as the text that is compiled first is there."""
    name = str(func.attrs["global_symbol"])
    func = pass_values(func)
    regions: list[KernelRegion] = []

    def note(region: KernelRegion) -> Stmt:
        if not has_clusters(ctx.target):  # there blocks run on their own
            region = replace(region, annotations={k: v for k, v in region.annotations.items() if k != KERNEL_CLUSTER})
        regions.append(region)
        return region.to_stmt()

    map_kernels(func.body, note)
    order = _order(func)
    names = [f"{name}_kernel" if len(regions) == 1 else f"{name}_kernel_{k}" for k in range(len(regions))]
    named = list(zip(regions, names, strict=True))
    dependent = may_depend(ctx)
    fast = [print_kernel(func, region, label, True, order, dependent) for region, label in named]
    text = hooks.apply(_text(func, fast), ctx.target)
    program = CudaProgram(name, text, "", "", [k.facts for k in fast], compile_flags(func, ctx), takes_tensors(func))
    if ready is not None:
        ready(program)
    if not any(k.maps for k in fast):  # else tensors that are not aligned get another program: see `_plain`
        careful = [print_kernel(func, region, label, False, order, dependent) for region, label in named]
        program.careful = hooks.apply(_text(func, careful), ctx.target)
    roots = view_roots(func.body)
    written = {buffer for region in regions for buffer in written_buffers(region, roots)}
    host = host_function(func, fast, written)
    program.host = host.script()
    return program, host


def _text(func: PrimFunc, kernels: list[KernelText]) -> str:
    source = str(func.attrs["tl.source"]) if "tl.source" in func.attrs else ""
    name = str(func.attrs["global_symbol"])
    return source_text(f"{name}{f' ({Path(source).name})' if source else ''}", kernels)


def _order(func: PrimFunc) -> dict[Var, int]:
    """Parameters first, in their order; then what the host makes, in the order of the program."""
    order: dict[Var, int] = {}
    for var in func.params:
        order.setdefault(var, len(order))
    return order


def build(func: PrimFunc, ctx: PassContext, memory: str = "cuda") -> Artifact:
    """Print; compile if the architecture is known and a compiler is here. memory: as `compile_host` takes it. The device's code and the
    host's are compiled side by side, so their seconds overlap."""
    seconds: dict[str, float] = {}
    arch = target_arch(ctx)
    cubins: dict[str, Future[toolchain.Cubin]] = {}
    with ThreadPoolExecutor(1) as device:  # the compiler runs outside of Python's lock

        def begin(program: CudaProgram) -> None:
            if arch and toolchain.available():
                cubins[arch] = device.submit(_cubin, program, arch, seconds)

        start = time.perf_counter()
        program, host = print_program(func, ctx, begin)
        printed = time.perf_counter()
        code = compile_host(host, ctx, memory)
        seconds |= {"print": printed - start, "host": time.perf_counter() - printed}
        found = {(name, False): cubin.result() for name, cubin in cubins.items()}
    return _artifact(Launcher(program, code, arch, found, _plain(ctx, memory)), ctx, seconds)


def _cubin(program: CudaProgram, arch: str, seconds: dict[str, float]) -> toolchain.Cubin:
    start = time.perf_counter()
    cubin = machine_code(program, arch)
    seconds["nvrtc"] = time.perf_counter() - start
    return cubin


def _plain(ctx: PassContext, memory: str) -> Callable[[], Launcher] | None:
    """How to make the launcher of the program without bulk copies."""
    again = ctx.again
    if again is None:
        return None

    def make() -> Launcher:
        launcher = build(*again({KEY_OFF: True}), memory).entry
        assert isinstance(launcher, Launcher)
        return launcher

    return make


def _artifact(launcher: Launcher, ctx: PassContext, seconds: dict[str, float]) -> Artifact:
    program = launcher.program
    save = functools.partial(_save, launcher)
    resources = functools.partial(_resources, launcher, ctx)
    return Artifact(launcher, program.text, program.host, tuple(ctx.notes), seconds, save, resources, launcher.python_function)


def _resources(launcher: Launcher, ctx: PassContext) -> tuple[KernelResources, ...]:
    """What the assembler reports of each kernel, for the architecture that the target names, else the default one."""
    if not toolchain.available():
        return ()
    cubin = launcher.cubin(launcher.arch or architecture(ctx.target))
    reports = [(facts, cubin.reports.get(facts.name, toolchain.KernelReport())) for facts in launcher.program.kernels]
    return tuple(
        KernelResources(f.name, cubin.arch, r.registers, r.shared, f.shared, r.local, r.spill_stores, r.spill_loads) for f, r in reports
    )


def _save(launcher: Launcher, folder: Any) -> None:
    codes = []
    for (arch, careful), cubin in launcher.cubins.items():
        file = f"{arch}{'_careful' if careful else ''}.cubin"
        Path(folder, file).write_bytes(cubin.data)
        codes.append({"arch": arch, "careful": careful, "file": file, "log": cubin.log})
    record = {"program": launcher.program.to_json(), "arch": launcher.arch, "codes": codes}
    Path(folder, PROGRAM).write_text(json.dumps(record), encoding="utf-8")
    launcher.host.save(Path(folder))


def load(folder: Any, ctx: PassContext) -> Artifact:
    """The artifact that `save` wrote into `folder`."""
    record = json.loads(Path(folder, PROGRAM).read_text(encoding="utf-8"))
    cubins = {}
    for code in record["codes"]:
        data = Path(folder, code["file"]).read_bytes()
        cubin = toolchain.Cubin(code["arch"], data, code["log"], toolchain.reports_of(code["log"]))
        cubins[code["arch"], bool(code["careful"])] = cubin
    program = CudaProgram.from_json(record["program"])
    return _artifact(Launcher(program, HostCode.load(Path(folder), program.name), record["arch"], cubins, _plain(ctx, "cuda")), ctx, {})


def version(ctx: PassContext) -> str:
    """What the machine code depends on besides the program: compiler, headers, architecture."""
    return f"cuda-3 {toolchain.version()} {toolchain.header_fingerprint()} {target_arch(ctx)} {host_version()} {hooks.key()}"
