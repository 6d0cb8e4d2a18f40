"""The record of the emulator: the stages and lowerings of the GPU, its own last step."""

from __future__ import annotations

from ...ir.verify import THREADS
from ..base import Backend
from ..gpu import LOWERINGS, SLOTS
from .build import build, load, version

BACKEND = Backend(
    kind="simt", last_level=THREADS, build=build, load=load, version=version, lowerings=LOWERINGS, slots=SLOTS,
)  # fmt: skip
