"""Formulas as text: evaluated by Python they give what the integers give."""

from hypothesis import given
from hypothesis import strategies as st

from tilelang.layout import Fragment, Layout, make_gemm_fragment_8x8
from tilelang.layout.symbol import Symbol, coordinates

OPERATIONS = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "//": lambda a, b: a // b, "%": lambda a, b: a % b,
    "^": lambda a, b: a ^ b, "&": lambda a, b: a & b, "|": lambda a, b: a | b, ">>": lambda a, b: a >> b,
}  # fmt: skip


LEAVES = st.sampled_from(["i", "j", 1, 2, 3, -2])


@given(st.recursive(LEAVES, lambda inner: st.tuples(st.sampled_from(sorted(OPERATIONS)), inner, inner), max_leaves=6))
def test_text_evaluates_to_the_same(tree):
    def compute(node, values):
        if not isinstance(node, tuple):
            return values.get(node, node)
        return OPERATIONS[node[0]](*(compute(part, values) for part in node[1:]))

    numbers = {"i": 5, "j": 12}
    try:
        expected = compute(tree, numbers)
        formula = compute(tree, {n: Symbol(n) for n in numbers})
    except (ZeroDivisionError, ValueError):  # a division by zero, a negative shift
        return
    assert eval(str(formula), dict(numbers)) == expected


def test_layouts_show_their_formula():
    layout = Layout((8, 8), lambda i, j: [j, (i ^ j) % 8 + 1])
    assert repr(layout) == "Layout([8, 8] -> j, (i ^ j) % 8 + 1)"
    assert [str(e) for e in layout.index] == ["j", "(i ^ j) % 8 + 1"]
    assert str(layout.get_linearized_forward_index()) == "j * 9 + ((i ^ j) % 8 + 1)"
    assert repr(Layout((3,), lambda i: (i * 2) % 3).inverse()) == "Layout([3] -> by table)"
    assert repr(make_gemm_fragment_8x8()) == "Fragment([8, 8] x 1 -> thread i * 4 + j // 2, index j % 2)"
    assert str(Fragment((4,), lambda i, rep: (i + rep * 4, 0), replicate=2).thread) == "i + rep * 4"
    assert [str(s) for s in coordinates(5)] == ["i0", "i1", "i2", "i3", "i4"]
