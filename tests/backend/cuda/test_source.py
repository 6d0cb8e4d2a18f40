"""The text that the CUDA backend prints: what a person would write, accepted by the compiler for every architecture."""

import re

import pytest

import tilelang
import tilelang.language as T
from tilelang.backend.cuda import hooks, toolchain
from tilelang.engine.callback import register_cuda_postproc_callback
from tilelang.errors import InternalError, TileNotSupportedError, TileValueError

from .programs import ALL, add_one, scalars, two_kernels, vector_add

needs_compiler = pytest.mark.skipif(not toolchain.available(), reason="needs NVRTC or nvcc")


def source(func, **options):
    return tilelang.compile(func, target="cuda", **options).get_kernel_source()


def test_names_of_the_user_and_lines_in_comments():
    text = source(add_one())
    assert "main_kernel(const float* __restrict__ A, float* __restrict__ B)" in text
    assert "const int bx = blockIdx.x;" in text
    assert re.search(r"// programs\.py:\d+", text)
    assert "__launch_bounds__(128)" in text


def test_vectorized_loops_move_16_bytes():
    text = source(vector_add())
    assert "tl::load_pack<8>(&A[" in text and "tl::store_pack(&B[" in text
    assert "A_v + A_v" in text  # two lanes in one instruction


def test_careful_text_assumes_no_alignment():
    program = tilelang.compile(vector_add(), target="cuda").artifact.entry.program
    assert "load_pack" not in program.careful and "__restrict__" not in program.careful


def test_division_is_safe_and_plain_where_proved():
    text = source(scalars())
    assert "tl::floor_div<int>(" in text  # by a value that may be 0
    assert "k % 3" in text


def test_groups_of_copies_that_the_program_counts():
    @T.prim_func
    def main(A: T.Tensor((4, 64), "float32"), O: T.Tensor((4, 64), "float32"), left: T.int32):
        with T.Kernel(1, threads=64):
            s = T.alloc_shared((4, 64), "float32")
            T.async_copy(A[0:2, 0:64], s[0:2, 0:64])
            T.async_copy(A[2:4, 0:64], s[2:4, 0:64])
            T.ptx_wait_group(1)
            T.copy(s[0:2, 0:64], O[0:2, 0:64])
            T.ptx_wait_group(left)
            T.copy(s[2:4, 0:64], O[2:4, 0:64])

    text = source(main)
    assert text.count("tl::cp_async_commit();") == 2
    assert re.findall(r"cp_async_wait<(\d)>", text) == ["1", "0"]  # a computed number: all groups


def test_kernels_of_one_program_and_the_host_part():
    kernel = tilelang.compile(two_kernels(), target="cuda")
    assert "main_kernel_0(" in kernel.kernel_source and "main_kernel_1(" in kernel.kernel_source
    host = kernel.get_host_source()
    assert host.count("tilelang_launch") == 2 and host.count("tilelang.cuda.workspace") == 1


@needs_compiler
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("name", ALL)
def test_compiles(name, arch):
    launcher = tilelang.compile(ALL[name](), target=f"cuda -arch={arch}").artifact.entry
    for careful in (False, True) if launcher.program.careful else (False,):
        cubin = launcher.cubin(arch, careful)
        assert len(cubin.data) > 1000 and {k.name for k in launcher.program.kernels} == cubin.reports.keys()
        assert all(r.registers > 0 and r.spill_stores == 0 for r in cubin.reports.values())


@needs_compiler
def test_text_that_the_compiler_refuses_is_shown_with_its_line():
    with pytest.raises(InternalError, match=r"refused the text of broken.*\n[\s\S]*nonsense"):
        toolchain.compile_source("__global__ void f() { nonsense; }", "sm_90", name="broken")


def test_architectures_by_name():
    assert toolchain.checked_arch("90a") == "sm_90a" and toolchain.checked_arch("compute_80") == "sm_80"
    for wrong in ("hopper", "sm_70", "sm_"):
        with pytest.raises(TileValueError, match=wrong):
            toolchain.checked_arch(wrong)


def test_missing_compiler_is_told(monkeypatch):
    monkeypatch.setattr(toolchain, "nvrtc", lambda: None)
    monkeypatch.setattr(toolchain, "nvcc", lambda: None)
    with pytest.raises(TileNotSupportedError, match="tilelang\\[cuda\\]"):
        toolchain.compile_source("", "sm_90")


@pytest.mark.skipif(toolchain.nvcc() is None, reason="needs nvcc")
def test_nvcc_takes_the_same_text(monkeypatch):
    program = tilelang.compile(scalars(), target="cuda").artifact.entry.program
    monkeypatch.setattr(toolchain, "nvrtc", lambda: None)
    cubin = toolchain.compile_source(program.text, "sm_90a")
    assert cubin.reports["main_kernel"].registers > 0


def test_the_user_may_change_the_text():
    register_cuda_postproc_callback(lambda text, target: f"// changed for {target}\n{text}")
    try:
        assert source(add_one()).startswith("// changed for cuda")
    finally:
        hooks.forget()
    assert not source(add_one()).startswith("// changed")


def test_grid_of_four_dimensions_is_refused():
    @T.prim_func
    def main(A: T.Tensor((2,), "float32")):
        with T.Kernel(1, 1, 1, 2, threads=32) as blocks:
            A[blocks[3]] = 1.0

    with pytest.raises(Exception, match=r"grid|dimension|extents"):
        tilelang.compile(main, target="cuda")


def test_a_product_with_a_remainder_keeps_its_parentheses():
    @T.prim_func
    def main(A: T.Tensor((64,), "int16"), B: T.Tensor((64,), "int16")):
        with T.Kernel(1, threads=64):
            for i in T.Parallel(64):
                B[i] = T.clamp(A[i] * (i % 4) + 3 * (i // 5), -100, 100)

    text = source(main)
    assert re.search(r"\* \(\w+ % 4\)", text)  # in C++ `a * b % 4` is `(a * b) % 4`
    assert re.search(r"3 \* \(\w+ / 5\)", text)


def test_a_pack_under_a_condition_is_read_under_it_only():
    @T.prim_func
    def main(A: T.Tensor((128,), "int32"), B: T.Tensor((128,), "int32"), n: T.int32):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(128):
                B[i] = T.if_then_else(T.if_then_else(n > 1, A[i], n) > 3, A[i], 5)

    text = source(main)
    name = re.search(r"if \(\(?1 < n\)?\) (\w+) = tl::load_pack<4>\(&A\[", text)
    assert name is not None, text
    (line,) = (line for line in text.splitlines() if "> 3" in line)
    # Whether the choice reads A depends on the lane: it reads memory, the pack may be empty.
    assert line.count(name.group(1)) == 1 and re.search(r"\? A\[.*\] : 5", line)
    # Where the same element is read in all cases the pack serves all of them.
    other = source(relu())
    assert other.count("A[") == 1 and "tl::load_pack<4>(&A[" in other


def relu():
    @T.prim_func
    def main(A: T.Tensor((128,), "float32"), B: T.Tensor((128,), "float32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(128):
                B[i] = T.if_then_else(A[i] > 0, A[i], A[i] * 0.5)

    return main


@needs_compiler
def test_the_assembler_reports_every_time():
    text = 'extern "C" __global__ void f(float* a) { a[threadIdx.x] += 1.0f; }'
    reports = [toolchain.compile_source(text, "sm_90a", name="twice").reports["f"] for _ in range(2)]
    assert reports[0] == reports[1] and reports[0].registers > 0
