"""Hardware instructions of the program as C++: each `tl.instr` call becomes the text of its record.

In: a `tl.instr` call, whose attribute `name` selects the record of `instr.py`. Out: the lines of its statement.
"""

from __future__ import annotations

from ...errors import InternalError
from ...ir.dialect import attr
from ...ir.tvm_api import Call
from .expressions import Expressions
from .operators import Operators


def instruction_call(call: Call, e: Expressions, o: Operators) -> list[str]:
    """The C++ statement lines of one instruction."""
    raise InternalError(f"instruction {attr(call, 'name')} has no record")
