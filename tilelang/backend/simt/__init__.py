"""The emulator: the program of one GPU thread interpreted with NumPy, every access to memory checked."""

from .backend import BACKEND

__all__ = ["BACKEND"]
