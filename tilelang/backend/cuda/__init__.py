"""The CUDA backend: one thread's program printed as CUDA C++, compiled by NVRTC, launched through the driver."""

from .backend import BACKEND

__all__ = ["BACKEND"]
