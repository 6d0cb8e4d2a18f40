"""Pass configuration keys, and the no-longer-needed simplification of programs."""

from .pass_config import PassConfigKey
from .simplify import apply_simplify, simplify_prim_func

__all__ = ["PassConfigKey", "apply_simplify", "simplify_prim_func"]
