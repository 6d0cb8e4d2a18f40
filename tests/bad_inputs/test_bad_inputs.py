"""Every bad program ends in a Python exception of the right class that points to the right line; none kills the process."""

from __future__ import annotations

import builtins
import json
import os
import pathlib
import subprocess
import sys

import pytest

from tilelang import errors

from .cases import CASES, Case

WORKER = """
import importlib.util, json, sys, pathlib, traceback, warnings
warnings.simplefilter("ignore")
import tilelang
for line in sys.stdin:
    task = json.loads(line)
    path = pathlib.Path(task["path"])
    path.write_text(task["source"])
    try:
        spec = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        if task["compile"]:
            tilelang.compile(module.main, target="cpu")
        answer = {"names": [], "text": "nothing was raised"}
    except BaseException as err:
        last = traceback.extract_tb(err.__traceback__)[-1]  # Python's own errors show the user's line in their traceback
        shown = f"{last.filename}:{last.lineno}:"
        answer = {"names": [c.__name__ for c in type(err).__mro__], "text": f"{type(err).__name__}: {err}\\n{shown}"}
    print(json.dumps(answer), flush=True)
"""


class Worker:
    """A process that runs cases one after another; started again when a case has killed it."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[str] | None = None

    def run(self, case: Case, folder: pathlib.Path) -> dict:
        if self.process is None or self.process.poll() is not None:
            self.process = subprocess.Popen(
                [sys.executable, "-c", WORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ}
            )
        assert self.process.stdin is not None and self.process.stdout is not None
        task = {
            "path": str(folder / f"case_{case.name}.py"),
            "source": case.text(),
            "compile": not case.source or "tilelang.compile" not in case.source,
        }
        if case.source and "def main" not in case.source:
            task["compile"] = False
        self.process.stdin.write(json.dumps(task) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            code = self.process.wait()
            self.process = None
            return {"names": [], "text": f"the process died with status {code}"}
        return json.loads(answer)


@pytest.fixture(scope="module")
def worker():
    made = Worker()
    yield made
    if made.process is not None:
        made.process.kill()


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_bad_input(case: Case, worker: Worker, tmp_path: pathlib.Path):
    answer = worker.run(case, tmp_path)
    text = answer["text"].lower()
    assert case.raises in answer["names"], f"{case.raises} expected: {answer['text']}"
    for mention in case.mentions:
        choices = (mention,) if isinstance(mention, str) else mention
        assert any(c.lower() in text for c in choices), f"{mention!r} is not mentioned: {answer['text']}"
    if case.line:
        assert f"case_{case.name}.py:{case.marked_line()}:" in answer["text"], f"line {case.marked_line()} is not named: {answer['text']}"


def test_there_are_enough_and_their_names_differ():
    assert len(CASES) >= 100
    assert len({c.name for c in CASES}) == len(CASES)


@pytest.mark.parametrize("name", sorted({c.raises for c in CASES}))
def test_expected_classes_exist(name):
    assert hasattr(builtins, name) or hasattr(errors, name)
