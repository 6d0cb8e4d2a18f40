"""What is asked of the driver, with another one in its place."""

from types import SimpleNamespace

import pytest

from tilelang.backend.cuda import driver
from tilelang.errors import InternalError


def parameters(*sizes):
    """A driver that has one kernel with parameters of these sizes."""

    def ask(function, k):
        return (0, 0, sizes[k]) if k < len(sizes) else (1, None, None)

    return SimpleNamespace(cuFuncGetParamInfo=ask)


CASES = [
    ((8, 4, 128), (8, 8, 128), True), ((), (), True), ((8,), (8, 8), False), ((8, 8), (8,), False), ((8, 128), (8, 8), False),
    ((8,), (), False),
]  # fmt: skip


@pytest.mark.parametrize(("sizes", "room", "fits"), CASES)
def test_a_launch_has_room_for_every_parameter(monkeypatch, sizes, room, fits):
    monkeypatch.setattr(driver, "bindings", lambda: parameters(*sizes))
    if fits:
        driver._check_parameters(1, "main_kernel", room)
        return
    with pytest.raises(InternalError, match=r"main_kernel has parameters of \["):
        driver._check_parameters(1, "main_kernel", room)


def test_older_drivers_do_not_tell(monkeypatch):
    def missing(function, k):
        raise RuntimeError("cuFuncGetParamInfo is not found")

    for found in (
        SimpleNamespace(),
        SimpleNamespace(cuFuncGetParamInfo=missing),
        SimpleNamespace(cuFuncGetParamInfo=lambda f, k: (1, 0, 0)),
    ):
        monkeypatch.setattr(driver, "bindings", lambda found=found: found)
        driver._check_parameters(1, "main_kernel", (8, 8))
