"""The CPU backend: tile programs as native loops through TVM's LLVM, blocks of the grid spread over the cores."""

from .backend import BACKEND

__all__ = ["BACKEND"]
