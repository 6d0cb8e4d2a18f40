"""`explain` on a program written by hand: stages, notes, memory as data, and the text of the command line."""

from dataclasses import replace

import pytest

from tilelang.__main__ import main
from tilelang.compiler.compile import backend_for
from tilelang.compiler.pipeline import stages_for
from tilelang.errors import Location, TileValueError
from tilelang.explain import explain, notes_text, overview, program_text, stages_text
from tilelang.ir.context import Note
from tilelang.ir.dialect import make_call
from tilelang.ir.kernel import KernelRegion
from tilelang.ir.tvm_api import AllocBuffer, Evaluate, PrimFunc, Var, decl_buffer, make_span, region, seq
from tilelang.target.target import parse_target


def at(line):
    return make_span(Location("/home/me/copy.py", line, 5, line, 30))


def copy_program():
    """B = A through a shared and a fragment tile."""
    a, b = decl_buffer((64, 64), "float32", "A"), decl_buffer((64, 64), "float32", "B")
    tile, registers = decl_buffer((64, 64), "float32", "S", "shared.dyn"), decl_buffer((64, 64), "float32", "R", "local.fragment")

    def copy(src, dst, line):
        whole = [region(x, [0, 0], [64, 64]) for x in (src, dst)]
        return Evaluate(make_call("tl.tileop.copy", whole, span=at(line)), at(line))

    body = seq([
        AllocBuffer(tile, None, at(8)), AllocBuffer(registers, None, at(9)),
        copy(a, tile, 11), copy(tile, registers, 12), copy(registers, b, 13),
    ])  # fmt: skip
    block, *threads = [Var(n, "int32") for n in ("bx", "tx", "ty", "tz")]
    kernel = KernelRegion(((block, 1),), tuple(zip(threads, (128, 1, 1), strict=True)), body, {}, at(5))
    return PrimFunc([a, b], kernel.to_stmt()).with_attr("global_symbol", "copies")


@pytest.fixture(scope="module")
def report():
    return explain(copy_program(), "cpu")


def test_stages_are_the_compiler_s_own(report):
    names = [stage.name for stage in stages_for(backend_for(parse_target("cpu", "cpu")))]
    assert [s.name for s in report.stages] == ["program", *names]
    assert (report.name, report.target) == ("copies", "cpu")
    lowered = report.stage("lower_tile_ops")
    assert lowered.changed
    assert "tl.tileop.copy" not in lowered.script()
    assert report.stage("program").script().count("tileop") == 3
    assert all(s.seconds >= 0 for s in report.stages)
    assert not report.build
    with pytest.raises(TileValueError, match="stages are program, "):
        report.stage("nope")


def test_unchanged_stages_say_so(report):
    for before, after in zip(report.stages, report.stages[1:], strict=False):
        assert after.changed == (not after.program.same_as(before.program))


def test_notes_have_lines(report):
    assert {n.at.line for n in report.notes if n.at is not None} >= {11, 12, 13}
    assert "copy.py:11" in notes_text(report)


def test_notes_tell_choices_with_what_declined_before_them(report):
    here, other = Location("copy.py", 7), Location("copy.py", 3)
    twice = [Note(here, "copy", "tma declined: rows of 6 bytes"), Note(here, "copy", "loops")] * 2
    notes = (*twice, Note(other, "warp roles", "none: T.ws"), Note(here, "copy", "tma"), Note(None, "layout", "x"))
    assert notes_text(replace(report, notes=notes)) == "\n".join([
        "copy.py:3", "    warp roles: none: T.ws",
        "copy.py:7", "    copy: loops (2 statements)", "        not tma: rows of 6 bytes", "    copy: tma",
        "?", "    layout: x",
    ])  # fmt: skip
    assert notes_text(replace(report, notes=())) == "no notes"


def test_notes_show_the_line_of_the_program(tmp_path, report):
    file = tmp_path / "mine.py"
    file.write_text("first\n    T.copy(A, B)\n")
    shown = notes_text(replace(report, notes=(Note(Location(str(file), 2), "copy", "loops"),)))
    assert shown == "mine.py:2  T.copy(A, B)\n    copy: loops"


def test_memory_of_the_program(report):
    (kernel,) = report.memory.kernels
    assert [(a.name, a.line, a.bytes) for a in kernel.allocations] == [("S", 8, 16384), ("R", 9, 16384)]
    assert kernel.totals() == {"shared.dyn": 16384, "local.fragment": 16384}
    assert kernel.at is not None
    assert kernel.at.line == 5


def test_build_gives_time_and_source():
    built = explain(copy_program(), "cpu", build=True)
    assert built.build["llvm"] > 0
    assert built.total_seconds >= sum(built.build.values())
    assert built.source
    assert [line.split()[0] for line in stages_text(built, times=True).splitlines()[-len(built.build) - 1 : -1]] == list(built.build)


def test_texts(report):
    text = overview(report)
    assert text.startswith("copies for cpu\n\nstage ")
    assert "S     copy.py:8  shared.dyn      64 x 64  float32  16,384  block     11-12" in text
    assert "local.fragment: 16,384 bytes for each block" in text
    assert all(line == line.rstrip() for line in text.splitlines())
    assert program_text(report, "program").startswith("// as written\n")
    assert program_text(report, "simplify").startswith("// after simplify\n")


# ---------------------------------------------------------------- the command line
@pytest.fixture
def file(tmp_path):
    path = tmp_path / "programs.py"
    path.write_text(
        f"from {__name__} import copy_program\n\ncopies = copy_program()\n\n\n"
        "def make(M, N=4):\n    assert (M, N) == (8, 4)\n    return copies\n"
    )
    return path


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([":copies"], "copies for cpu"),
        ([""], "copies for cpu"),
        ([":make", "--arg", "M=8"], "copies for cpu"),
        ([":copies", "--memory"], "kernel 0 (copy.py:5): grid 1, 128 threads a block"),
        ([":copies", "--stage", "lower_tile_ops"], "// after lower_tile_ops"),
        ([":copies", "--all"], "// as written"),
    ],
)
def test_commands(file, capsys, words, expected):
    assert main(["explain", f"{file}{words[0]}", "--target", "cpu", *words[1:]]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0] == expected


def test_all_prints_each_changed_program(file, capsys):
    assert main(["explain", f"{file}:copies", "--target", "cpu", "--all", "--time"]) == 0
    out = capsys.readouterr().out
    changed = [s.name for s in explain(copy_program(), "cpu").stages if s.changed]
    assert out.count("\n// after ") == len(changed) - 1
    assert "\nllvm " in out


def test_source(file, capsys):
    assert main(["explain", f"{file}:copies", "--target", "cpu", "--source"]) == 0
    assert capsys.readouterr().out.strip() == explain(copy_program(), "cpu", build=True).source.strip()


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["{file}:nope"], "defines no nope"),
        (["{file}x:copies"], "no file"),
        (["{file}:make"], "needs arguments: M"),
        (["{file}:make", "--arg", "Q=1"], "no parameter Q"),
        (["{file}:copies", "--stage", "nope"], "no stage 'nope'"),
        (["{file}:copies", "--arg", "M"], "expected name=value"),
    ],
)
def test_errors_are_one_message_and_status_one(file, capsys, words, text):
    words = [w.format(file=file) for w in words]
    assert main(["explain", words[0], "--target", "cpu", *words[1:]]) == 1
    seen = capsys.readouterr()
    assert seen.out == ""
    assert seen.err.startswith("error: ")
    assert text in seen.err
    assert "Traceback" not in seen.err
