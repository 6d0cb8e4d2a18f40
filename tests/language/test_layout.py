"""T.Layout, T.Fragment and T.annotate_layout: formulas against integers, records against the program, errors by text."""

import itertools

import numpy as np
import pytest

from tilelang.errors import TileRuntimeError
from tilelang.ir.builder import Builder, writing
from tilelang.ir.dialect import ANNOTATION_ALLOC
from tilelang.ir.tvm_api import IntImm, Var, decl_buffer, tirx
from tilelang.language.layout import Fragment, Layout, annotate_layout, evaluate
from tilelang.layout import Layout as PlainLayout
from tilelang.layout import LayoutError, make_swizzled_layout


def points(shape):
    return itertools.product(*map(range, shape))


def at(exprs, variables, values):
    table = dict(zip(variables, values, strict=True))
    return tuple(int(evaluate(e, table)) for e in exprs)


FORWARDS = [
    lambda i, j: [j, i],
    lambda i, j: [i // 4, j // 3, i % 4 * 3 + j % 3],
    lambda i, j: [i, j ^ (i % 4)],
    lambda i, j: i * 12 + 11 - j,
    lambda i, j: [tirx.Select(i < 4, j, 11 - j), i],
    lambda i, j: [tirx.if_then_else(i % 2 == 0, i, i - 1) + i % 2, tirx.max(i, j) - tirx.max(i - j, 0)],
    lambda i, j: [tirx.truncdiv(i, 3), tirx.truncmod(i, 3), (j << 1) >> 1],
]


@pytest.mark.parametrize("forward", FORWARDS)
def test_formula_agrees_with_integers(forward):
    layout = Layout((8, 12), forward)
    variables = layout.get_forward_vars()
    assert len(variables) == 2
    assert layout.get_input_shape() == (8, 12)
    box = layout.get_output_shape()
    for p in points((8, 12)):
        assert layout(*p) == at(layout.get_forward_index(), variables, p) == at(layout.index, variables, p)
        assert all(x < e for x, e in zip(layout(*p), box, strict=True))
        assert at([layout.get_linearized_forward_index()], variables, p) == (layout.offsets()[p],)


def test_map_forward_index_substitutes():
    layout = Layout((8, 8), lambda i, j: [j, i ^ (j % 8)])
    k = Var("k", "int32")
    out = layout.map_forward_index([k, IntImm("int32", 5)])
    for x in range(8):
        assert at(out, [k], [x]) == layout(x, 5)


@pytest.mark.parametrize(
    "forward", [lambda i, j: [j, i], lambda i, j: [i // 4, j // 4, i % 4, j % 4], lambda i, j: [i, (j // 2 ^ i % 4) * 2 + j % 2]]
)
def test_inverse_has_a_formula(forward):
    layout = Layout((8, 8), forward)
    inverse = layout.inverse()
    assert isinstance(inverse, Layout)
    for p in points((8, 8)):
        assert at(inverse.index, inverse.get_forward_vars(), layout(*p)) == p


def test_derived_layouts_stay_layouts():
    layout = Layout((4, 8), lambda i, j: [j, i])
    for derived in (layout.repeat(0, 2), layout.expand([3]), layout.reshape((32,)), layout.inverse()):
        assert isinstance(derived, Layout)
        assert len(derived.get_forward_vars()) == len(derived.shape)
    assert layout.is_equal(PlainLayout((4, 8), lambda i, j: (j, i)))


def test_layouts_refuse_what_is_no_integer_map():
    with pytest.raises(TypeError, match="expected an integer"):
        Layout((4,), lambda i: i * 0.5)
    other = Var("n", "int32")
    with pytest.raises(LayoutError, match="own coordinates only, not n"):
        Layout((4,), lambda i: i + other).get_output_shape()
    with pytest.raises(LayoutError, match="integer operations"):
        Layout((4,), tirx.popcount).get_output_shape()


def test_fragment_formulas():
    atom = Fragment((8, 8), lambda i, j: (i * 4 + j // 2, j % 2))
    for whole in (atom, atom.repeat([2, 1]), atom.repeat([1, 2], True), atom.replicate(3), atom.replicate(2).condense_rep_var()):
        assert isinstance(whole, Fragment)
        variables = whole.get_forward_vars()
        for p in points((*whole.shape, whole.replicate_size)):
            assert (*at([whole.thread], variables, p), *at(whole.index, variables, p)) == whole(*p)
    i, j = Var("t", "int32"), Var("r", "int32")
    coords = atom.coords_of(i, j)
    assert all(at(coords, [i, j], atom(*p)) == p for p in points((8, 8)))
    numbered = Fragment((6, 4), forward_thread_fn=lambda i, j: i)
    assert all(at(numbered.index, numbered.get_forward_vars(), (*p, 0)) == (p[1],) for p in points((6, 4)))


# ---------------------------------------------------------------- annotate_layout
class Kernel:
    """A kernel that is being written by hand."""

    def __init__(self):
        self.builder = Builder("cpu")

    def __enter__(self):
        self.open = [writing(self.builder), self.builder.frame("function"), self.builder.frame("kernel")]
        for context in self.open:
            context.__enter__()
        return self

    def __exit__(self, *error):
        for context in reversed(self.open):
            context.__exit__(*error)

    def alloc(self, shape, scope, dtype="float16", name="S"):
        return self.builder.alloc(decl_buffer(shape, dtype, name, scope))

    def facts(self, buffer):
        (stmt,) = [s for s in self.builder.kernel.allocs if s.buffer.same_as(buffer)]
        return dict(stmt.annotations).get(ANNOTATION_ALLOC, {})


@pytest.mark.parametrize(
    "given",
    [
        make_swizzled_layout,
        lambda buffer: make_swizzled_layout(buffer, allow_pad=False),
        lambda i, j: [j, i],
        Layout((16, 64), lambda i, j: [j, i]),
        lambda *x: x[0] * 64 + x[1],
    ],
)
def test_annotation_is_recorded_with_the_allocation(given):
    with Kernel() as kernel:
        tile = kernel.alloc((16, 64), "shared.dyn")
        annotate_layout({tile: given})
        record = kernel.facts(tile)["layout"]
        assert isinstance(record, tirx.IndexMap)
    if given is make_swizzled_layout:
        expected = make_swizzled_layout(tile)
        for p in points((16, 64)):
            assert at(record.final_indices, record.initial_indices, p) == expected(*p)


def test_annotation_of_a_fragment():
    with Kernel() as kernel:
        tile = kernel.alloc((8, 8), "local.fragment", "float32")
        fragment = Fragment((8, 8), lambda i, j: (i * 4 + j // 2, j % 2)).replicate(2)
        annotate_layout({tile: fragment})
        facts = kernel.facts(tile)
        assert facts["replicate"] == 2
        record = facts["layout"]
        assert all(at(record.final_indices, record.initial_indices, p) == fragment(*p) for p in points((8, 8, 2)))


def test_annotation_of_a_parameter_has_no_effect():
    with Kernel() as kernel:
        tensor = decl_buffer((8, 8), "float32", "A")
        annotate_layout({tensor: lambda i, j: [j, i]})
        assert not kernel.builder.kernel.allocs


@pytest.mark.parametrize(
    ("scope", "given", "error", "text"),
    [
        ("shared.dyn", 5, ValueError, "5 .int. is no layout"),
        ("shared.dyn", None, ValueError, "no layout"),
        ("shared.dyn", Fragment((8, 8), lambda i, j: (i, j)), ValueError, "Fragment is no layout"),
        ("shared.dyn", Layout((8, 8), lambda i, j: [i + j]), ValueError, r"elements \(0, 1\) and \(1, 0\) into one place"),
        ("shared.dyn", Layout((4, 16), lambda i, j: [i, j]), ValueError, r"S has shape \(8, 8\), its layout is of shape \(4, 16\)"),
        ("shared.dyn", lambda buffer: 3, ValueError, "returned 3"),
        ("local.fragment", Layout((8, 8), lambda i, j: [i, j]), AssertionError, "must be a T.Fragment, got Layout"),
        ("local.fragment", Fragment((8, 8), lambda i, j: (i, j // 2)), ValueError, "share register"),
    ],
)
def test_wrong_annotations(scope, given, error, text):
    with Kernel() as kernel:
        tile = kernel.alloc((8, 8), scope)
        with pytest.raises(error, match=text):
            annotate_layout({tile: given})


def test_wrong_arguments():
    with Kernel(), pytest.raises(ValueError, match="dictionary"):
        annotate_layout([1])  # type: ignore[arg-type]
    with Kernel(), pytest.raises(ValueError, match="is no buffer"):
        annotate_layout({"S": lambda i: i})
    with pytest.raises(TileRuntimeError, match="annotate_layout"):
        annotate_layout({})


def test_arrays_and_integers_agree():
    layout = Layout((8, 8), lambda i, j: [j, i ^ (j % 8)])
    i, j = np.indices((8, 8))
    assert np.array_equal(np.stack(layout(i, j), -1), layout.table)
    assert all(isinstance(x, int) for x in layout(3, 4))
