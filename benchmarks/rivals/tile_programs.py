"""Sides that are tile programs: the text in `examples/`, compiled by this package or by the public `tilelang` wheel.

Both have the import name `tilelang`; the process decides which one it is.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from .work import OURS, WHEEL, Config, Operands, Side

ROOT = Path(__file__).resolve().parents[2]
FAST = {"tl.enable_fast_math": True}  # as torch and Triton build their kernels


@functools.cache
def programs_of(module: str) -> Any:
    """A module of tile programs by its path from the root of the repository, such as "examples/gemm"."""
    spec = importlib.util.spec_from_file_location(f"programs_of_{Path(module).name}", ROOT / f"{module}.py")
    assert spec is not None and spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def architecture() -> str:
    """The device's architecture by name, with its own instructions where there are any (sm_90a)."""
    major, minor = torch.cuda.get_device_capability()
    return f"sm_{major}{minor}{'a' if major >= 9 else ''}"


def compiled(program: Any, config: Config) -> Any:
    """The kernel. Named architecture: this package then compiles at once, not at the first call."""
    tilelang = importlib.import_module("tilelang")
    wheel = importlib.util.find_spec("tilelang.knobs") is None
    target = "auto" if wheel else f"cuda -arch={architecture()}"
    return tilelang.compile(program, target=target, pass_configs=config.get("pass_configs", FAST))


def tile_sides(
    module: str, function: str, sizes: Mapping[str, Any], ours: tuple[Config, ...], wheel: tuple[Config, ...] | None = None,
    order: Sequence[int] = (),
) -> dict[str, Side]:  # fmt: skip
    """The two sides of a program `<module>.py:<function>`. sizes: its arguments; a configuration adds tile sizes, under "pass_configs"
    settings of the compiler, and under "program" may name another program (module, function) for the same work. wheel: configurations
    of the public wheel, the same ones by default; () = it has no such side. order: the inputs as the program takes them; the outputs
    come after them."""

    def bind(kernel: Any, operands: Operands) -> Callable[[], Any]:
        inputs = [operands.inputs[k] for k in order] if order else operands.inputs
        arguments = (*inputs, *operands.outputs)

        def call() -> None:  # the wheel's kernels return what they wrote
            kernel(*arguments)

        return call

    def build(config: Config) -> Any:
        tiles = {key: value for key, value in config.items() if key not in ("pass_configs", "program")}
        where, name = config.get("program", (module, function))
        return compiled(getattr(programs_of(where), name)(**sizes, **tiles), config)

    sides = {OURS: Side(build, bind, ours, compiled=True)}
    if wheel != ():
        sides[WHEEL] = Side(build, bind, ours if wheel is None else wheel, WHEEL, compiled=True)
    return sides
