"""Hand-made warp specialisation: right values on the emulator, a text that the compiler takes, and on the CPU right values or an error at
the line."""

import re

import numpy as np
import pytest

import tilelang
from tilelang.backend.cuda import toolchain
from tilelang.errors import TileNotSupportedError

from .hopper_programs import PROGRAMS

BULK = {"conditions_on_the_thread", "bulk_copies_in_a_group", "ping_pong", "bulk_store", "an_elected_thread", "attention",
        "result_for_another_group"}  # fmt: skip
WITHOUT_PRODUCTS = {"bulk_store", "rows_through_a_ring", "an_elected_thread"}
ON_THE_CPU = {"products_in_flight", "asynchronous_copies"}  # the others wait at mbarriers


def check(name, target, config=None):
    program, make = PROGRAMS[name]
    arguments, expected = make()
    tilelang.compile(program(), target=target, pass_configs=config)(*arguments)
    got = arguments[-1].astype(np.float64)
    np.testing.assert_allclose(got, expected.astype(np.float64), rtol=2e-2, atol=3e-2)


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("name", PROGRAMS)
def test_values_on_the_emulator(name, seed):
    """Races, missing fences, deadlocks and memory nobody wrote would be errors."""
    check(name, "simt", {"tl.simt_seed": seed})


@pytest.mark.parametrize("name", PROGRAMS)
def test_values_or_an_error_at_the_line_on_the_cpu(name):
    if name in ON_THE_CPU:
        check(name, "cpu")
        return
    with pytest.raises(TileNotSupportedError, match=r"alloc_barrier\(\.\.\.\) exists on GPUs only") as caught:
        check(name, "cpu")
    assert caught.value.at is not None and caught.value.at.file.endswith("hopper_programs.py")


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_printed(name):
    """Bulk copies where the program says so, warpgroup products in each part, registers moved as asked."""
    entry = tilelang.compile(PROGRAMS[name][0](), target="cuda -arch=sm_90a").artifact.entry
    text = entry.program.text
    assert ("tl::tma_load" in text) == (name in BULK) and (" wgmma_m64" in text) == (name not in WITHOUT_PRODUCTS)
    if name in ("bulk_copies_in_a_group", "conditions_on_the_thread"):
        assert sorted(re.findall(r"(more|fewer)_registers<(\d+)>", text)) == [("fewer", "24"), ("more", "240")]
    if toolchain.available():
        (kernel,) = entry.program.kernels
        report = entry.cubin("sm_90a").reports[kernel.name]
        assert (report.spill_stores, report.spill_loads) == (0, 0)
