"""The one door for settings: every environment variable of the package is read here, typed and documented.

In: `TILELANG_*` variables, or `with knobs.scoped(strict=True)`. Out: attributes of `knobs`. A knob marked
`codegen` changes generated code and is part of every cache key. Standard library only.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any


def _flag(text: str) -> bool:
    return text.strip().lower() in ("1", "true", "yes", "on")


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


@dataclass(frozen=True)
class Knob:
    """One setting. `parse` reads the environment's text; `codegen` puts the value into cache keys."""

    name: str
    variable: str
    default: Any
    parse: Callable[[str], Any]
    doc: str
    codegen: bool = False


KNOBS = (
    Knob("cache_dir", "TILELANG_CACHE_DIR", Path.home() / ".tilelang" / "cache", Path, "folder of compiled kernels"),
    Knob("tmp_dir", "TILELANG_TMP_DIR", None, Path, "folder for temporary files; the system's when unset"),
    Knob("disable_cache", "TILELANG_DISABLE_CACHE", False, _flag, "compile always, keep nothing on disk"),
    Knob("target", "TILELANG_DEFAULT_TARGET", "auto", str, "target used when a program names none"),
    Knob("execution_backend", "TILELANG_EXECUTION_BACKEND", "auto", str, "launcher name; every name is accepted"),
    Knob("verbose", "TILELANG_VERBOSE", False, _flag, "print each compilation with its time"),
    Knob("print_on_compilation", "TILELANG_PRINT_ON_COMPILATION", False, _flag, "print a line for each compiled kernel"),
    Knob("strict", "TILELANG_STRICT", False, _flag, "warnings about the user's memory become errors"),
    Knob("verify", "TILELANG_VERIFY", False, _flag, "check the level's law after every stage"),
    Knob("dump", "TILELANG_DUMP", (), _names, "names of stages (or 'all') whose program is printed to stderr"),
    Knob("num_threads", "TVM_NUM_THREADS", 0, int, "worker threads of the CPU backend; 0 = all cores"),
    Knob("cpu", "TILELANG_CPU", "", str, "LLVM name of the processor to compile for; empty = this one", codegen=True),
    Knob("cuda_home", "CUDA_HOME", Path("/usr/local/cuda"), Path, "folder of the CUDA toolkit, for nvcc and its headers"),
    Knob("simt_seed", "TILELANG_SIMT_SEED", 0, int, "seed of the orders that the emulator (target simt) draws"),
    Knob("autotune_timeout", "TILELANG_AUTO_TUNING_TIMEOUT", 100.0, float, "seconds one tuned configuration may take"),
)


class Knobs:
    """Values of all knobs: a scoped value first, then the environment, then the default."""

    def __init__(self) -> None:
        self._table = {knob.name: knob for knob in KNOBS}
        self._scoped: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._table:
            raise AttributeError(f"no knob named {name!r}; there are {', '.join(self._table)}")
        if name in self._scoped:
            return self._scoped[name]
        knob = self._table[name]
        text = os.environ.get(knob.variable)
        if text is None or text == "":
            return knob.default
        try:
            return knob.parse(text)
        except ValueError:
            expected = f"{knob.parse.__name__}: {knob.doc}; the default is {knob.default!r}"
            raise ValueError(f"{knob.variable}={text!r} cannot be read as {expected}") from None

    def set(self, **values: Any) -> None:
        """Set knobs for the rest of the process."""
        for name in values:
            if name not in self._table:
                raise AttributeError(f"no knob named {name!r}; there are {', '.join(self._table)}")
        self._scoped.update(values)

    @contextlib.contextmanager
    def scoped(self, **values: Any) -> Iterator[None]:
        """Set knobs inside a `with` block."""
        before = dict(self._scoped)
        self.set(**values)
        try:
            yield
        finally:
            self._scoped = before

    def codegen_key(self) -> tuple[tuple[str, str], ...]:
        """The knobs that change generated code, for cache keys."""
        return tuple((k.name, str(getattr(self, k.name))) for k in KNOBS if k.codegen)


knobs = Knobs()
