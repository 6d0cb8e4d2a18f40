"""Texts of programs for cache keys: exact where it matters, blind to positions."""

import time

import pytest

from tests.passes.programs import kernel
from tilelang.errors import Location
from tilelang.ir.text import canonical_text
from tilelang.ir.tvm_api import FloatImm, For, ForKind, Var, decl_buffer, load, make_span, store, tirx


def program(constant=1.0, line=1, annotation=None, kernel_notes=None, extent=4):
    A = decl_buffer((extent,), "float64", "A")

    def body(blocks, threads):
        i = Var("i", "int32")
        value = tirx.Add(load(A, [i]), FloatImm("float64", constant))
        inner = store(A, value, [i], make_span(Location("a.py", line)))
        return [For(i, 0, extent, ForKind.SERIAL, inner, annotations={"tl.pipeline": annotation} if annotation is not None else None)]

    return kernel([A], body, **(kernel_notes or {})).with_attr("tl.source", f"a.py:{line}")


def test_positions_do_not_matter():
    assert canonical_text(program(line=1)) == canonical_text(program(line=99))


@pytest.mark.parametrize(("a", "b"), [(0.0, -0.0), (0.1, 0.1 + 2**-56), (1e-300, 1.0000000000000002e-300), (float("inf"), -float("inf"))])
def test_every_bit_of_a_constant_counts(a, b):
    assert canonical_text(program(a)) != canonical_text(program(b))
    assert canonical_text(program(annotation={"x": [a]})) != canonical_text(program(annotation={"x": [b]}))
    assert canonical_text(program(kernel_notes={"safe": FloatImm("float64", a)})) != canonical_text(
        program(kernel_notes={"safe": FloatImm("float64", b)})
    )


def test_annotations_and_shapes_count():
    programs = program(), program(annotation=1), program(annotation=2), program(kernel_notes={"k": 3}), program(extent=5)
    assert len({canonical_text(p) for p in programs}) == 5


def test_fast_enough():
    func = program()
    start = time.perf_counter()
    canonical_text(func)
    assert time.perf_counter() - start < 0.05
