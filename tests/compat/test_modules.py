"""Names that programs import from the host modules, and what they do."""

import importlib
import importlib.util
import subprocess
import sys

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang import testing
from tilelang.carver.arch import CUDA
from tilelang.carver.template import MatmulTemplate
from tilelang.errors import TileNotSupportedError, TileTypeError, TileValueError
from tilelang.intrinsics import TensorCoreIntrinEmitter
from tilelang.primitives import gemm
from tilelang.quantize import general_compress, interleave_weight
from tilelang.target.target import Target
from tilelang.tools import Analyzer, plot_layout
from tilelang.utils import deprecated, determine_target, map_torch_type

IMPORTS = """
from tilelang import jit, compile, autotune, tvm, language, layout, testing, profiler, cdiv, next_power_of_2
from tilelang import JITKernel, Profiler, TensorSupplyType, PassConfigKey, DataType, env, cache, par_compile, lower, cached
from tilelang.autotuner import *
from tilelang.autotuner import AutoTuner, autotune, jit, set_autotune_inputs
from tilelang.autotune import get_autotune_inputs
from tilelang.cache import clear_cache
from tilelang.carver import MatmulTemplate
from tilelang.carver.arch import CUDA
from tilelang.carver.roller.rasterization import NoRasterization
from tilelang.carver.template import MatmulTemplate
from tilelang.cuda.intrinsics import make_mma_swizzle_layout, get_swizzle_layout, TensorCoreIntrinEmitter
from tilelang.backend.target import determine_target
from tilelang.engine import lower
from tilelang.engine.callback import register_cuda_postproc_callback
from tilelang.engine.param import KernelParam
from tilelang.env import env
from tilelang.intrinsics import make_mma_swizzle_layout, TensorCoreIntrinEmitter
from tilelang.intrinsics.mma_layout import make_mma_swizzle_layout
from tilelang.intrinsics.mma_macro_generator import TensorCoreIntrinEmitter, INT4TensorCoreIntrinEmitterWithLadderTransform
from tilelang.jit import JITKernel, jit, compile
from tilelang.jit.exceptions import JITNoBuilderError
from tilelang.jit.kernel import JITKernel
from tilelang.layout import make_swizzled_layout, Layout, Fragment
from tilelang.math import next_power_of_2, cdiv
from tilelang.primitives import gemm
from tilelang.profiler import do_bench, Profiler
from tilelang.quantize import general_compress, interleave_weight
from tilelang.testing import main, requires_cuda, set_random_seed, torch_assert_close
from tilelang.tools import Analyzer, plot_layout
from tilelang.tools.Analyzer import Analyzer
from tilelang.transform import PassConfigKey, simplify_prim_func
from tilelang.transform.simplify import apply_simplify
from tilelang.utils import determine_target, TensorSupplyType, deprecated, map_torch_type
from tilelang.utils.target import determine_target
from tilelang.utils.tensor import TensorSupplyType, get_tensor_supply, map_torch_type, torch_assert_close
from tilelang.tvm import DataType, IRModule, tir
import tilelang.tvm as tvm
""".strip().splitlines()


@pytest.mark.parametrize("line", IMPORTS)
def test_import(line):
    exec(line, {})


def test_decorators_stay_decorators_after_imports():
    for module in ("tilelang.jit.exceptions", "tilelang.jit.kernel", "tilelang.autotune.tuner", "tilelang.autotuner"):
        importlib.import_module(module)
    assert callable(tilelang.jit)
    assert callable(tilelang.autotune)
    assert callable(tilelang.compile)


def test_all_names_exist():
    for name in tilelang.__all__:
        assert getattr(tilelang, name) is not None
    assert tilelang.__version__.count(".") == 2


def test_the_package_imports_no_torch_by_itself():
    code = "import sys; sys.modules['torch'] = None; import tilelang, tilelang.language; print('fine')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.strip() == "fine", done.stderr[-2000:]


def test_pass_config_keys_are_their_strings():
    key = tilelang.PassConfigKey
    assert key.TL_ENABLE_FAST_MATH == "tl.enable_fast_math"
    assert {key.TL_DISABLE_SAFE_MEMORY_ACCESS: True}["tl.disable_safe_memory_legalize"]
    assert key("tl.disable_warp_specialized") is key.TL_DISABLE_WARP_SPECIALIZED


def test_integer_helpers():
    assert [tilelang.next_power_of_2(k) for k in (0, 1, 2, 3, 8, 9, 1000)] == [1, 1, 2, 4, 8, 16, 1024]
    assert [tilelang.cdiv(a, 4) for a in (0, 1, 4, 5)] == [0, 1, 1, 2]


def test_tvm_facade():
    tvm = tilelang.tvm

    @T.prim_func
    def main(A: T.Tensor((4,), "float32")):
        with T.Kernel(1, threads=32):
            T.clear(A)

    assert isinstance(main, tvm.tir.PrimFunc)
    assert isinstance(main, tvm.tirx.PrimFunc)
    assert isinstance(main.params[0], tvm.tir.Buffer)
    assert not isinstance(tvm.te.var("n"), tvm.tir.Buffer)
    assert isinstance(tvm.tir.const(1, "int32"), tvm.tir.PrimExpr)
    assert tvm.DataType("float16").bits == 16
    assert tvm.IRModule({"main": main})["main"].attrs["global_symbol"] == "main"
    tvm.ir.assert_structural_equal(main, main)
    with tvm.target.Target("llvm"):
        assert tilelang.utils.determine_target(return_object=True).kind == "cpu"
    with pytest.raises(AttributeError):
        tvm.no_such_name  # noqa: B018


def test_determine_target():
    assert determine_target("auto") == "cpu"
    assert determine_target("llvm", return_object=True) == Target("cpu")
    assert determine_target("cuda -arch=sm_90") == "cuda -arch=sm_90"
    with pytest.raises(TileValueError):
        determine_target("nonsense")


def test_marks_of_tests():
    def skipped(mark):
        def test():
            return 1

        (found,) = mark(test).pytestmark
        return found.args == (True,)

    assert skipped(testing.requires_package("no_such_package_at_all"))
    assert not skipped(testing.requires_package("numpy"))
    assert not skipped(testing.requires_llvm)
    assert skipped(testing.requires_metal())
    with pytest.raises(TileValueError):
        testing.requires_cuda_compute_version(9, 0, mode="about")


def test_testing_main(tmp_path):
    file = tmp_path / "test_it.py"
    file.write_text("import tilelang.testing\ndef test_a():\n    assert 1\nif __name__ == '__main__':\n    tilelang.testing.main()\n")
    done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, timeout=120, cwd=tmp_path, check=False)
    assert done.returncode == 0
    assert "1 passed" in done.stdout


def test_deprecated_and_map_torch_type():
    torch = pytest.importorskip("torch")

    @deprecated("old", "new", "2.0")
    def old(x):
        return x + 1

    with pytest.warns(DeprecationWarning, match="old is deprecated, use new; it goes away in 2.0"):
        assert old(1) == 2
    assert map_torch_type("e4m3_float8") is torch.float8_e4m3fn
    assert map_torch_type("float16") is torch.float16


def test_what_needs_a_gpu_says_so():
    for call in (
        TensorCoreIntrinEmitter,
        gemm,
        lambda: Analyzer.analysis(None, None),
    ):
        with pytest.raises(TileNotSupportedError):
            call()


def test_templates_recommend_tiles_that_fit():
    arch = CUDA("cuda")
    hints = (
        MatmulTemplate(M=1024, N=1024, K=1024, in_dtype="float16", out_dtype="float16", accum_dtype="float")
        .with_arch(arch)
        .recommend_hints(topk=10)
    )
    assert 1 <= len(hints) <= 10
    for hint in hints:
        (m, n), (wm, wn), (k,) = hint.block, hint.warp, hint.rstep
        assert m % wm == n % wn == 0
        assert (m + n) * k * 2 * hint.pipeline_stage <= arch.smem_cap


@pytest.mark.parametrize("bits", [1, 2, 4])
def test_packing(bits):
    values = np.random.default_rng(0).integers(0, 1 << bits, (3, 64)).astype(np.int8)
    packed = general_compress(values, bits)
    assert packed.shape == (3, 64 * bits // 8)
    unpacked = (packed.view(np.uint8)[..., None] >> (bits * np.arange(8 // bits))) & ((1 << bits) - 1)
    np.testing.assert_array_equal(unpacked.reshape(3, 64), values)
    words = interleave_weight(packed, bits, "float16").view(np.uint32)
    plain = packed.view(np.uint32)
    count = 32 // bits
    for k in range(count):
        place = (k % 2) * 16 + (k // 2) * bits
        np.testing.assert_array_equal((words >> place) & ((1 << bits) - 1), (plain >> (bits * k)) & ((1 << bits) - 1))
    with pytest.raises(TileValueError):
        general_compress(values, 3)


def test_plot_layout(tmp_path):
    layout = T.Layout((4, 4), lambda i, j: i * 4 + (j ^ i))
    if importlib.util.find_spec("matplotlib") is None:
        with pytest.raises(TileNotSupportedError, match="matplotlib"):
            plot_layout(layout, save_directory=tmp_path)
    else:
        plot_layout(layout, save_directory=tmp_path, name="x", formats="png,svg")
        assert (tmp_path / "x.png").stat().st_size > 0
    with pytest.raises(TileTypeError):
        plot_layout(3)


def test_environment_and_log(monkeypatch):
    monkeypatch.setenv("TILELANG_TMP_DIR", "/tmp/somewhere")
    assert str(tilelang.env.TILELANG_TMP_DIR) == "/tmp/somewhere"
    with pytest.raises(AttributeError):
        tilelang.env.NO_SUCH_SETTING  # noqa: B018
    with pytest.raises(AttributeError):
        tilelang.env.NO_SUCH_SETTING = 1
    tilelang.set_log_level("WARNING")
    with pytest.raises(TileValueError):
        tilelang.set_log_level("loud")
