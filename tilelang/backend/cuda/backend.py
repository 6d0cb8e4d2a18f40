"""The record of the CUDA backend."""

from __future__ import annotations

from ...ir.verify import THREADS
from ..base import Backend
from .build import build, load, version

BACKEND = Backend(kind="cuda", last_level=THREADS, build=build, load=load, version=version)
