"""A short run of the random programs; `python -m tests.fuzz.run --count 5000` is the long one."""

import pytest

from .generator import generate
from .run import check


@pytest.mark.parametrize("seed", range(60))
def test_random_program_agrees_with_numpy(seed):
    failure = check(seed)
    assert not failure, f"seed {seed}: {failure}\n{generate(seed).source}"


def test_programs_depend_on_nothing_but_the_seed():
    assert generate(11).source == generate(11).source
    assert generate(11).source != generate(12).source
