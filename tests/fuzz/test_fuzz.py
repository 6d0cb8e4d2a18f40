"""A short run of the random programs; `python -m tests.fuzz.run --count 5000` is the long one."""

import re

import pytest

from .generator import generate
from .run import check

PIPELINED = [seed for seed in range(200) if re.search(r"num_stages=[1-9]", generate(seed).source)]


@pytest.mark.parametrize("seed", range(40))
def test_random_program_agrees_with_numpy(seed):
    failure = check(seed)
    assert not failure, f"seed {seed}: {failure}\n{generate(seed).source}"


@pytest.mark.parametrize("seed", range(40, 60))
def test_random_program_agrees_with_numpy_thread_by_thread(seed):
    failure = check(seed, "simt")
    assert not failure, f"seed {seed}: {failure}\n{generate(seed).source}"


@pytest.mark.parametrize("seed", PIPELINED[:8])
def test_stages_change_nothing(seed):
    """All values are exact: what equals the reference is equal bit by bit."""
    for serial in (False, True):
        failure = check(seed, "simt", serial)
        assert not failure, f"seed {seed}, serial {serial}: {failure}\n{generate(seed).source}"


def test_programs_depend_on_nothing_but_the_seed():
    assert generate(11).source == generate(11).source
    assert generate(11).source != generate(12).source
