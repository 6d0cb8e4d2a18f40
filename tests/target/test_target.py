"""Every spelling of a target that programs use."""

import pytest

from tilelang.errors import TileTypeError, TileValueError
from tilelang.ir.tvm_api import tvm
from tilelang.target.target import Target, parse_target


@pytest.mark.parametrize("text", ["cpu", "llvm", "c", "auto", None])
def test_cpu_spellings(text):
    assert parse_target(text).kind == "cpu"
    assert not parse_target(text).is_gpu


def test_options():
    target = parse_target("cuda -arch=sm_90 -fast")
    assert (target.kind, target.option("arch"), target.option("fast"), target.option("other", "no")) == ("cuda", "sm_90", "1", "no")
    assert parse_target({"kind": "cuda", "arch": "sm_90"}) == Target("cuda", (("arch", "sm_90"),))
    assert str(parse_target({"kind": "cuda", "arch": "sm_90"})) == "cuda -arch=sm_90"


def test_tvm_target():
    assert parse_target(tvm.target.Target({"kind": "llvm", "mcpu": "x86-64"})).kind == "cpu"


@pytest.mark.parametrize(("bad", "mentions"), [("hip", "hip"), ("cpuu", "cpuu"), ("", "empty"), ({"arch": "sm_90"}, "unknown target")])
def test_bad_targets_are_named(bad, mentions):
    with pytest.raises(TileValueError, match=mentions):
        parse_target(bad)


def test_bad_type():
    with pytest.raises(TileTypeError, match="int"):
        parse_target(3)
