"""What the analyzer is told about names."""

from tilelang.ir.dialect import VAR
from tilelang.ir.tvm_api import IntImm, Var, decl_buffer, load, tirx
from tilelang.passes.facts import Facts


def test_half_of_an_unknown_integer_has_either_sign():
    """The number of its values does not fit in its own type."""
    x = decl_buffer((1,), "int32", "x", VAR)
    half = Var("half", "int32")
    facts = Facts()
    facts.bind_value(half, tirx.FloorDiv(load(x, [0]), IntImm("int32", 2)))
    zero = IntImm("int32", 0)
    for comparison in (tirx.GE(half, zero), tirx.LT(half, zero)):
        assert not isinstance(facts.simplify(comparison), IntImm)
