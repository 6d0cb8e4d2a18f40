"""Knobs: scoped values win over the environment, the environment over defaults; unknown names are refused."""

import pytest

from tilelang.knobs import KNOBS, knobs


def test_order_of_sources(monkeypatch):
    monkeypatch.delenv("TILELANG_STRICT", raising=False)
    assert knobs.strict is False
    monkeypatch.setenv("TILELANG_STRICT", "1")
    assert knobs.strict is True
    with knobs.scoped(strict=False):
        assert knobs.strict is False
    assert knobs.strict is True


def test_names_list(monkeypatch):
    monkeypatch.setenv("TILELANG_DUMP", "simplify, guard_bounds")
    assert knobs.dump == ("simplify", "guard_bounds")


def test_unknown_names_are_refused():
    with pytest.raises(AttributeError, match="colour"):
        knobs.set(colour=1)
    with pytest.raises(AttributeError, match="colour"):
        _ = knobs.colour


def test_a_value_that_cannot_be_read_names_its_variable(monkeypatch):
    monkeypatch.setenv("TILELANG_AUTO_TUNING_TIMEOUT", "soon")
    with pytest.raises(ValueError, match="TILELANG_AUTO_TUNING_TIMEOUT='soon' cannot be read as float"):
        _ = knobs.autotune_timeout


def test_every_knob_is_documented_once():
    assert all(k.doc for k in KNOBS)
    assert len({k.name for k in KNOBS}) == len({k.variable for k in KNOBS}) == len(KNOBS)


def test_only_marked_knobs_enter_cache_keys():
    assert {name for name, _ in knobs.codegen_key()} == {k.name for k in KNOBS if k.codegen}
