"""The command line: `python -m tilelang explain file.py:function`.

In: the words after `python -m tilelang`. Out: text on stdout, exit status 0; an error's text on stderr, status 1
(2 for wrong usage).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from .backend.target import resolve_target
from .errors import InternalError, TileError
from .explain import as_program, explain, find, import_file, memory_text, overview, parse_arguments, program_text, split_target, stages_text


def parser() -> argparse.ArgumentParser:
    """The commands and their options."""
    top = argparse.ArgumentParser(prog="python -m tilelang", description="Tools for tile programs.")
    commands = top.add_subparsers(dest="command", required=True)
    one = commands.add_parser(
        "explain",
        help="show the stages of a compilation, the program after any of them, notes, and the memory report",
        description="FILE:NAME is a program, a function that returns one, or a function under @tilelang.jit.",
    )
    one.add_argument("program", metavar="FILE:NAME", help="for example examples/quickstart.py:matmul")
    one.add_argument("--target", default="auto", help='"cpu", "cuda", ...; default: the best of this machine')
    one.add_argument("--arg", action="append", default=[], metavar="NAME=VALUE", help="an argument of the factory; may be repeated")
    what = one.add_mutually_exclusive_group()
    what.add_argument("--stage", metavar="NAME", help='print the program after this stage ("program": as written)')
    what.add_argument("--all", action="store_true", help="print the program after every stage that changed it")
    what.add_argument("--memory", action="store_true", help="print the memory report only")
    what.add_argument("--source", action="store_true", help="print the generated code")
    what.add_argument("--json", action="store_true", help="print stages, notes and the memory report as JSON")
    one.add_argument("--time", action="store_true", help="also the time of each stage and of code generation")
    return top


def run_explain(options: argparse.Namespace) -> str:
    """The text that `explain` prints."""
    path, name = split_target(options.program)
    found = find(import_file(path), name, path)
    func = as_program(found, parse_arguments(options.arg), name)
    # The assembler's registers are a part of a GPU's memory report.
    assembled = resolve_target(options.target).kind == "cuda" and not (options.stage or options.all)
    report = explain(func, options.target, build=options.time or options.source or assembled)
    if options.json:
        return json.dumps(report.as_dict(), indent=2)
    if options.stage:
        parts = [program_text(report, options.stage)]
    elif options.all:
        parts = [program_text(report, stage.name) for stage in report.stages if stage.changed]
    elif options.memory:
        parts = [memory_text(report)]
    elif options.source:
        parts = [report.source]
    else:
        return overview(report, options.time)
    if options.time:
        parts.append(stages_text(report, times=True))
    return "\n\n".join(parts)


def main(words: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    options = parser().parse_args(words)
    try:
        print(run_explain(options))
    except (TileError, InternalError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
