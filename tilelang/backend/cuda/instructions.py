"""Hardware instructions of the program as C++: each `tl.instr` call becomes a call of its record's function.

In: a `tl.instr` call, whose attribute `name` selects the record of `backend/gpu/instr.py`. Out: one statement; the definition of the
function is noted, to stand once before the kernels.
"""

from __future__ import annotations

from ...errors import InternalError
from ...ir.dialect import attr
from ...ir.tvm_api import Call
from ..gpu.instr import INSTRUCTIONS
from .operators import Operators


def instruction_call(call: Call, o: Operators) -> str:
    """The statement of one instruction: its function on the addresses of the operands."""
    record = INSTRUCTIONS.get(str(attr(call, "name")))
    if record is None:
        raise InternalError(f"instruction {attr(call, 'name')} has no record")
    o.definitions[record.function] = record.code
    return f"{record.function}({', '.join(o.region_address(region) for region in call.args)});"
