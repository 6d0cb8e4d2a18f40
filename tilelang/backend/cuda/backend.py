"""The record of the CUDA backend: the stages and lowerings of the GPU, then printing and compiling."""

from __future__ import annotations

from ...ir.verify import THREADS
from ..base import Backend
from ..gpu import LOWERINGS, SLOTS
from .build import build, load, version

BACKEND = Backend(
    kind="cuda", last_level=THREADS, build=build, load=load, version=version, lowerings=LOWERINGS, slots=SLOTS,
)  # fmt: skip
