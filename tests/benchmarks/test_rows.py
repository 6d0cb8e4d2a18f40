"""The rows of `benchmarks/gpu.py`: every configuration of a tile program is one that its example takes; session and report on processes
that answer from a script, without a device."""

import json
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def rivals():
    """The package `rivals`, which the benchmarks import as a neighbour of theirs."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        import gpu  # noqa: PLC0415
        from rivals import report, session, table, tile_programs, work  # noqa: PLC0415

        yield {m.__name__.rpartition(".")[2]: m for m in (gpu, report, session, table, tile_programs, work)}
    finally:
        sys.path.remove(str(BENCHMARKS))


def test_names_and_goals(rivals):
    table = rivals["table"]
    rows = table.table()
    assert set(table.QUICK) <= set(rows)
    assert {row.family for row in rows.values()} == set(table.GOALS)
    for row in rows.values():
        assert set(row.rivals()) <= set(row.sides), row.name


def test_every_program_is_traced(rivals, monkeypatch):
    """What an example's function does not take, or cannot trace, fails here and not on the device."""
    seen = []
    monkeypatch.setattr(rivals["tile_programs"], "compiled", lambda program, config: seen.append(program))
    kinds = {}
    for row in rivals["table"].table().values():
        for config in row.sides["ours"].configs if "ours" in row.sides else ():
            kinds.setdefault((row.family, str(config)), (row, config))
    for row, config in kinds.values():
        row.sides["ours"].build(config)
    assert len(seen) == len(kinds) > 20
    assert all(hasattr(program, "params") for program in seen)


# A process that answers as `server.serve` does; the time of a turn is the next of the side's numbers.
FAKE = """
import itertools, json, sys
times = {sides!r}
turns = {{name: itertools.cycle(ms) for name, ms in times.items() if isinstance(ms, list)}}
for line in sys.stdin:
    r = json.loads(line)
    if r["do"] == "open":
        answer = {{"sets": 1, "sides": {{s: {{"ms": 1.0, "error": 0.0}} if s in turns else {{"failed": times[s]}} for s in r["sides"]}}}}
    elif r["do"] == "turn":
        answer = {{"ms": next(turns[r["side"]])}}
    elif r["do"] == "attempt":
        if times[r["side"]] == "dies":
            sys.exit(3)
        answer = {{"error": 0.0}} if r["side"] in turns else {{"failed": times[r["side"]]}}
    else:
        answer = {{"device": "none"}}
    print(json.dumps(answer), flush=True)
"""


@pytest.fixture
def scripted(rivals, tmp_path, monkeypatch):
    """A session whose processes answer from a script, and a row with these sides."""

    def make(sides):
        script = tmp_path / "fake.py"
        script.write_text(FAKE.format(sides=sides))
        monkeypatch.setattr(rivals["session"], "COMMAND", script)
        Side, Row = rivals["work"].Side, rivals["work"].Row
        row = Row("r", "gemm", 2e9, "TFLOP/s", None, None, 0.0, {label: Side(None, None, compiled=True) for label in sides})
        return rivals["session"].Session(jobs=2, rounds=3, seconds=0.1), row

    return make


def test_medians_and_ratio(scripted):
    session, row = scripted({"ours": [2.0, 1.0, 3.0], "a": [4.0, 3.0, 3.0], "b": [9.0], "broken": "no memory"})
    record = session.measure(row, {label: {} for label in row.sides}, {"broken": {"failed": "no memory"}})
    session.close()
    assert record["sides"]["ours"] | {"ms": 2.0, "value": 1.0, "least_ms": 1.0} == record["sides"]["ours"]
    assert record["sides"]["broken"]["failed"] == "no memory"
    assert (record["best"], record["ratio"]) == ("a", 2.0)  # the median of 4/2, 3/1, 3/3
    json.dumps(record)


def test_a_process_that_dies_costs_one_side(scripted):
    session, row = scripted({"ours": [1.0], "crash": "dies", "wrong": "wrong result"})
    answers = session.attempt([(row, label, {}) for label in ("crash", "ours", "wrong", "ours")])
    session.close()
    assert answers[1] == answers[3] == {"error": 0.0}
    assert answers[2] == {"failed": "wrong result"}
    assert answers[0]["failed"].startswith("process ended (3)")


@pytest.mark.parametrize(("recorded", "tune"), [({}, False), ({}, True), ({"r": {"ours": {"k": 2}}}, False)])
def test_a_configuration_that_fails_gives_way_to_the_next(rivals, recorded, tune):
    Side, Row = rivals["work"].Side, rivals["work"].Row
    row = Row(
        "r", "gemm", 1.0, "GB/s", None, None, 0.0, {"ours": Side(None, None, ({"k": 1}, {"k": 2}), compiled=True), "b": Side(None, None)}
    )

    class Scripted:
        def sides(self, row):
            return row.sides

        def attempt(self, jobs):
            return [{"failed": "x"} if config["k"] == 1 else {"error": 0.0} for _, _, config in jobs]

    found = rivals["gpu"].attempts(Scripted(), [row], recorded, tune)["r"]
    assert (found.configs, found.failed) == ({"ours": [{"k": 2}], "b": [{}]}, {})


def test_tuning_takes_the_fastest(rivals, monkeypatch):
    session = rivals["session"].Session()
    times = {1: 3.0, 2: 1.0, 3: None}

    def measured(row, chosen, rounds):
        ((label, config),) = chosen.items()
        ms = times[config["k"]]
        return {"sides": {label: {"failed": "x"} if ms is None else {"ms": ms}}}

    monkeypatch.setattr(session, "measure", measured)
    assert session.tune(None, {"ours": [{"k": 1}, {"k": 2}, {"k": 3}], "other": [{"k": 3}]}) == {"ours": {"k": 2}}


def test_summary_and_verdict(rivals):
    report = rivals["report"]

    def row(name, value, ratio, family="gemm"):
        sides = {"ours": {"value": value, "ms": 1.0} if value else {"failed": "x"}, "cuBLAS": {"value": 500.0, "ms": 1.0}}
        found = {"name": name, "family": family, "unit": "TFLOP/s", "sides": sides, "best": "cuBLAS"}
        return {**found, "ratio": ratio} if ratio else found

    (line,) = report.summary([row("a", 550, 1.1), row("b", 480, 0.96)])
    assert "mean 1.028" in line and "least 0.960" in line and line.endswith("reached")
    assert report.summary([row("a", 550, 1.1), row("b", 400, 0.8)])[0].endswith("missed")
    assert report.summary([row("a", 550, 1.1), row("b", 0, 0)])[0].endswith("incomplete")
    assert report.summary([row("w", 610, 0, "w4a16")])[0].endswith("reached")  # its goal is a value
    assert report.line(row("a", 550, 1.1)).split() == ["a", "550", "TFLOP/s", "1.10", "of", "cuBLAS", "cuBLAS", "500"]
