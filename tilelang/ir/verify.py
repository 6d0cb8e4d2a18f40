"""The law of each level of the program, as a check that runs between stages.

In: a program, the level it claims to be at, the name of the stage that produced it. Out: nothing, or an
`InternalError` with the statement that breaks the law: such a program is always our bug, never the user's.
"""

from __future__ import annotations

from typing import Any

from ..errors import InternalError
from .tvm_api import PrimFunc, tirx

TILE, LOOPS = "TILE", "LOOPS"


def verify(func: PrimFunc, level: str, stage: str) -> None:
    """Check the law of `level`; raise `InternalError` naming `stage` and the offending statement."""
    if not tirx.analysis.verify_well_formed(func, assert_mode=False):
        _fail(stage, "the program is not well-formed", func)


def _fail(stage: str, what: str, node: Any) -> None:
    raise InternalError(f"after {stage}: {what}\n{node}")
