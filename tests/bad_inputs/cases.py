"""Bad programs, each with the exception it must raise, what the text must mention, and the line it must point to.

A case is a kernel body (lines under `with T.Kernel(2, threads=64) as bx:`) or a whole function; the wrong line ends with
`#!`. `mentions` are looked for without regard to case; a tuple means any of them.
"""

# ruff: noqa: E501  (a program is one string)
from __future__ import annotations

from dataclasses import dataclass

PARAMS = "X: T.Tensor((64,), 'float32'), Y: T.Tensor((64,), 'float32'), M: T.Tensor((64, 32), 'float32'), I: T.Tensor((64,), 'int32')"


@dataclass(frozen=True)
class Case:
    name: str
    raises: str
    mentions: tuple[str | tuple[str, ...], ...]
    body: str = ""
    source: str = ""  # a whole program instead of a body
    kernel: str = "T.Kernel(2, threads=64) as bx"
    params: str = PARAMS
    line: bool = True  # must the text point to the marked line?

    def text(self) -> str:
        if self.source:
            return "import tilelang\nimport tilelang.language as T\n\n" + self.source
        lines = ["import tilelang.language as T", "", "", "@T.prim_func", f"def main({self.params}):"]
        lines.append(f"    with {self.kernel}:" + ("  #!" if self.line and "#!" not in self.body else ""))
        lines += ["        " + line for line in self.body.strip("\n").split("\n")]
        return "\n".join(lines) + "\n"

    def marked_line(self) -> int:
        return next((n for n, line in enumerate(self.text().split("\n"), 1) if line.rstrip().endswith("#!")), 0)


def body(name: str, raises: str, mentions: tuple[str | tuple[str, ...], ...], text: str, **more: object) -> Case:
    return Case(name, raises, mentions, body=text, **more)  # type: ignore[arg-type]


ALLOCATION = [
    body("dtype_misspelt", "TypeError", ("flaot16",), "s = T.alloc_shared((8,), 'flaot16')  #!"),
    body("dtype_number", "TypeError", ("16",), "s = T.alloc_shared((8,), 16)  #!"),
    body("dtype_none", "TypeError", ("None",), "s = T.alloc_fragment((8,), None)  #!"),
    body("scope_misspelt", "ValueError", ("sharde", "shared"), "s = T.alloc_shared((8,), 'float32', scope='sharde')  #!"),
    body("scope_number", "TypeError", ("3",), "s = T.alloc_shared((8,), 'float32', scope=3)  #!"),
    body("extent_negative", "ValueError", ("-16",), "s = T.alloc_shared((8, -16), 'float32')  #!"),
    body("extent_zero", "ValueError", ("0",), "s = T.alloc_fragment((0, 4), 'float32')  #!"),
    body("extent_float", "TypeError", ("4.5",), "s = T.alloc_shared((4.5,), 'float32')  #!"),
    body("extent_string", "TypeError", ("eight",), "s = T.alloc_shared(('eight',), 'float32')  #!"),
    body("extent_none", "TypeError", ("None",), "s = T.alloc_shared((None,), 'float32')  #!"),
    body("fragment_symbolic", "ValueError", ("compile-time",), "s = T.alloc_fragment((bx + 1,), 'float32')  #!"),
    body("local_symbolic", "ValueError", ("compile-time",), "s = T.alloc_local((bx + 1,), 'float32')  #!"),
    body("too_many_positionals", "TypeError", (("positional", "argument"),), "s = T.alloc_shared((8,), 'float32', 'shared', 4)  #!"),
    body("var_overflow", "ValueError", ("300", "int8"), "v = T.alloc_var('int8', 300)  #!"),
    body("var_negative_unsigned", "ValueError", ("-1", "uint8"), "v = T.alloc_var('uint8', -1)  #!"),
    body("var_float_into_int", "ValueError", ("1.5", "int32"), "v = T.alloc_var('int32', 1.5)  #!"),
    body("var_two_initial_values", "TypeError", ("init",), "v = T.alloc_var('int32', 1, init=2)  #!"),
    body("var_scope_not_string", "TypeError", (("scope", "string"),), "v = T.alloc_var('int32', 1, 2)  #!"),
    body("var_four_positionals", "TypeError", (("positional", "argument"),), "v = T.alloc_var('int32', 1, 'local.var', 5)  #!"),
    body("barrier_on_cpu", "NotImplementedError", ("cuda",), "b = T.alloc_barrier(64)  #!"),
    body("barrier_count_zero", "ValueError", ("0",), "b = T.alloc_barrier(0)  #!"),
    body("reducer_op", "ValueError", ("product",), "r = T.alloc_reducer((8,), 'float32', op='product')  #!"),
    body("reducer_bit_float", "ValueError", ("float32",), "r = T.alloc_reducer((8,), 'float32', op='bitand')  #!"),
    body("view_size", "AssertionError", ("64",), "s = T.alloc_shared((64,), 'float32')\nv = T.view(s, (32,), 'float32')  #!"),
    body("reshape_size", "AssertionError", ("64",), "s = T.alloc_shared((64,), 'float32')\nv = T.reshape(s, (5, 5))  #!"),
    body(
        "shared_in_parallel",
        "ValueError",
        ("parallel",),
        "for i in T.Parallel(8):\n    s = T.alloc_shared((8,), 'float32')  #!\n    s[i] = 0.0",
    ),
    body(
        "local_by_parallel_index",
        "ValueError",
        ("loc", "T.Parallel"),
        "loc = T.alloc_local((8,), 'float32')\nfor i in T.Parallel(8):\n    loc[i] = 0.0  #!",
    ),
    Case("outside_kernel", "RuntimeError", ("alloc_shared",), source="T.alloc_shared((4,), 'float32')\n", line=False),
    Case(
        "in_function_outside_kernel",
        "RuntimeError",
        ("kernel",),
        source="@T.prim_func\ndef main(X: T.Tensor((4,), 'float32')):\n    s = T.alloc_shared((4,), 'float32')  #!\n",
    ),
]

COPIES = [
    body(
        "copy_shapes",
        "ValueError",
        ("64", "48", "a", "b"),
        "a = T.alloc_shared((64, 32), 'float32')\nb = T.alloc_fragment((48, 32), 'float32')\nT.copy(M, a)\nT.copy(a, b)  #!",
    ),
    body("copy_rank", "ValueError", ("64",), "a = T.alloc_shared((64,), 'float32')\nT.copy(M, a)  #!"),
    body("copy_number", "TypeError", ("3",), "a = T.alloc_shared((64,), 'float32')\nT.copy(3, a)  #!"),
    body("copy_none", "TypeError", ("None",), "a = T.alloc_shared((64,), 'float32')\nT.copy(X, None)  #!"),
    body("copy_missing", "TypeError", (("argument", "dst"),), "T.copy(X)  #!"),
    body("copy_keyword", "TypeError", ("colour",), "a = T.alloc_shared((64,), 'float32')\nT.copy(X, a, colour=3)  #!"),
    body("fill_number", "TypeError", ("5",), "T.fill(5, 0)  #!"),
    body("fill_tile_value", "TypeError", ("a",), "a = T.alloc_shared((64,), 'float32')\nT.fill(a, X)  #!"),
    body("fill_string", "TypeError", ("zero",), "a = T.alloc_shared((64,), 'float32')\nT.fill(a, 'zero')  #!"),
    body("clear_none", "TypeError", ("None",), "T.clear(None)  #!"),
    body(
        "transpose_shape",
        "ValueError",
        ("64", "32"),
        "a = T.alloc_shared((64, 32), 'float32')\nb = T.alloc_shared((64, 32), 'float32')\nT.copy(M, a)\nT.transpose(a, b)  #!",
    ),
]

_AB = "a = T.alloc_shared((64, 32), 'float16')\nb = T.alloc_shared((32, 16), 'float16')\nc = T.alloc_fragment((64, 16), 'float32')\nT.clear(a)\nT.clear(b)\nT.clear(c)\n"
COMPUTE = [
    body("gemm_k", "AssertionError", ("K", "64", "32"), _AB + "T.gemm(a, b, c, transpose_A=True)  #!"),
    body("gemm_m", "AssertionError", ("M", "64"), _AB + "d = T.alloc_fragment((32, 16), 'float32')\nT.clear(d)\nT.gemm(a, b, d)  #!"),
    body("gemm_n", "AssertionError", ("N", "16"), _AB + "d = T.alloc_fragment((64, 8), 'float32')\nT.clear(d)\nT.gemm(a, b, d)  #!"),
    body("gemm_vector", "AssertionError", ("a",), _AB + "v = T.alloc_shared((64,), 'float16')\nT.gemm(v, b, c)  #!"),
    body("gemm_types", "TypeError", ("float16", "int8"), _AB + "i = T.alloc_shared((64, 32), 'int8')\nT.clear(i)\nT.gemm(i, b, c)  #!"),
    body("gemm_number", "TypeError", ("7",), _AB + "T.gemm(a, 7, c)  #!"),
    body("reduce_dim", "ValueError", ("5",), _AB + "r = T.alloc_fragment((64,), 'float16')\nT.reduce_sum(a, r, dim=5)  #!"),
    body("reduce_shape", "ValueError", ("64",), _AB + "r = T.alloc_fragment((16,), 'float16')\nT.reduce_sum(a, r, dim=1)  #!"),
    body("reduce_kind", "ValueError", ("median",), _AB + "r = T.alloc_fragment((64,), 'float16')\nT.reduce(a, r, 'median', 1, True)  #!"),
    body(
        "reduce_bits_of_float",
        "TypeError",
        ("float16",),
        _AB + "r = T.alloc_fragment((64,), 'float16')\nT.reduce_bitand(a, r, dim=1)  #!",
    ),
    body("reduce_batch", "ValueError", ("0",), _AB + "r = T.alloc_fragment((64,), 'float16')\nT.reduce_sum(a, r, dim=1, batch=0)  #!"),
    body("cumsum_dim", "ValueError", ("2",), _AB + "T.cumsum(a, dim=2)  #!"),
    body("cumsum_shape", "ValueError", ("64",), _AB + "d = T.alloc_shared((16, 32), 'float16')\nT.cumsum(a, d, dim=0)  #!"),
    body("any_of_region", "ValueError", (("region", "extent"),), _AB + "if T.any_of(a[0:4, 0:4]):  #!\n    T.clear(b)"),
    body("atomic_tile_shapes", "ValueError", ("64",), _AB + "T.atomic_add(M, c)  #!"),
    body("atomic_order", "ValueError", ("sometimes",), "T.atomic_add(I[0], 1, memory_order='sometimes')  #!"),
    body("atomic_load_order", "ValueError", ("release",), "v = T.atomic_load(I[0], memory_order='release')  #!"),
    body("dp4a_types", "ValueError", ("float32",), "l = T.alloc_local((4,), 'float32')\nT.clear(l)\nT.dp4a(l, l, I[0])  #!"),
    body("vote_float", "TypeError", ("float32",), "v = T.any_sync(X[0])  #!"),
    body("rounding_mode", "ValueError", ("up",), "X[0] = T.ieee_add(X[0], X[1], 'up')  #!"),
    body("fast_math_int", "TypeError", ("int32",), "I[0] = T.__exp(I[0])  #!"),
]

EXPRESSIONS = [
    body("index_count", "IndexError", ("M", "2"), "Y[0] = M[bx]  + 1.0 #!"),
    body("index_too_many", "IndexError", ("X", "1"), "Y[0] = X[bx, 0]  #!"),
    body("index_float", "TypeError", ("float",), "Y[0] = X[1.5]  #!"),
    body("index_device_float", "TypeError", ("float32",), "Y[0] = X[X[0]]  #!"),
    body("index_string", "TypeError", ("first",), "Y[0] = X['first']  #!"),
    body("store_count", "IndexError", ("M",), "M[0] = 1.0  #!"),
    body("store_string", "TypeError", ("one",), "Y[0] = 'one'  #!"),
    body("store_none", "TypeError", ("None",), "Y[0] = None  #!"),
    body("store_buffer", "TypeError", ("X",), "Y[0] = X  #!"),
    body("store_into_name", "TypeError", ("Y",), "Y += 1.0  #!"),
    body("int_division", "TypeError", ("//",), "Y[0] = I[0] / I[1]  #!"),
    body("modulo_zero", "ZeroDivisionError", ("zero",), "I[0] = I[1] % 0  #!"),
    body("floordiv_zero", "ZeroDivisionError", ("zero",), "I[0] = I[1] // 0  #!"),
    body("shift_float", "TypeError", ("float32",), "I[0] = X[0] << 2  #!"),
    body("and_float", "TypeError", ("float32",), "I[0] = X[0] & 3  #!"),
    body("invert_float", "TypeError", ("float32",), "Y[0] = ~X[0]  #!"),
    body("add_string", "TypeError", ("a",), "Y[0] = X[0] + 'a'  #!"),
    body("add_buffer", "TypeError", ("X",), "Y[0] = X + 1.0  #!"),
    body("add_none", "TypeError", ("None",), "Y[0] = X[0] + None  #!"),
    body("buffer_condition", "TypeError", ("X",), "if X:  #!\n    Y[0] = 1.0"),
    body("unknown_name", "NameError", ("undefined_name",), "Y[0] = undefined_name  #!"),
    body("value_of_nothing", "TypeError", ("None", "return_prev=True"), "Y[0] = T.atomic_add(Y[0], 1)  #!"),
    body("unknown_keyword", "TypeError", ("T.print()", "mesg"), "T.print(X[0], mesg='a')  #!"),
    body("python_sorts_device_values", "TypeError", ("sorted", "truth"), "Y[0] = sorted([X[0], X[1]])[0]  #!"),
    body("dict_of_device_value", "TypeError", ("dict", "device value"), "Y[0] = {1: 2}[T.get_thread_binding()]  #!"),
    body(
        "unknown_attribute",
        "TileAttributeError",
        ("alloc_sharedd", "did you mean alloc_shared"),
        "s = T.alloc_sharedd((4,), 'float32')  #!",
    ),
    body("math_of_buffer", "TypeError", ("X",), "Y[0] = T.exp(X)  #!"),
    body("math_of_string", "TypeError", ("abc",), "Y[0] = T.exp('abc')  #!"),
    body("cast_type", "TypeError", ("flaot",), "Y[0] = T.cast(X[0], 'flaot')  #!"),
    body("reinterpret_width", "TypeError", ("float32", "int64"), "v = T.reinterpret(X[0], 'int64')  #!"),
    body("max_one", "TypeError", ("argument",), "Y[0] = T.max(X[0])  #!"),
    body("slice_step", "IndexError", ("step",), "s = T.alloc_shared((4,), 'float32')\nT.copy(X[0:8:2], s)  #!"),
    body("literal_too_wide", "ValueError", (str(2**70),), f"I[0] = I[1] + {2**70}  #!"),
]

CONTROL = [
    body("while_true", "TileError", ("while",), "while True:  #!\n    Y[0] = 1.0"),
    body("for_over_buffer", "TypeError", ("X",), "for v in X:  #!\n    Y[0] = v"),
    body("for_over_number", "TypeError", ("8",), "for v in 8:  #!\n    Y[0] = 1.0"),
    body("step_zero", "ValueError", ("0",), "for k in T.serial(0, 8, 0):  #!\n    Y[k] = 1.0"),
    body("parallel_nothing", "TypeError", ("extent",), "for i in T.Parallel():  #!\n    Y[0] = 1.0"),
    body("parallel_unpack", "IndexError", ("2",), "for i in T.Parallel(4, 4):\n    Y[i] = 1.0  #!"),
    body("parallel_string", "TypeError", ("four",), "for i in T.Parallel('four'):  #!\n    Y[i] = 1.0"),
    body("parallel_float", "TypeError", ("4.0",), "for i in T.Parallel(4.0):  #!\n    Y[i] = 1.0"),
    body("break_outside", "SyntaxError", ("break",), "break  #!", line=False),
    body("read_after_loop", "NameError", ("t",), "for k in T.serial(4):\n    t = X[k]\nY[0] = t  #!"),
    body("read_after_if", "NameError", ("t",), "if bx > 0:\n    t = X[0]\nY[0] = t  #!"),
    body("return_value", "TileError", ("return",), "return 3  #!"),
    body("try_statement", "TileError", ("try",), "try:  #!\n    Y[0] = 1.0\nexcept ValueError:\n    pass"),
    body("attribute_assignment", "TileError", ("attribute",), "X.name = 'new'  #!"),
    body("yield_statement", "TileError", ("yield",), "yield X[0]  #!"),
    body("unroll_both", "ValueError", ("explicit",), "for k in T.unroll(4, explicit=True, unroll_factor=2):  #!\n    Y[k] = 1.0"),
    body("pipelined_stages", "ValueError", ("-1",), "for k in T.Pipelined(4, num_stages=-1):  #!\n    Y[k] = 1.0"),
]

KERNELS = [
    body("threads_zero", "ValueError", ("threads",), "Y[0] = 1.0", kernel="T.Kernel(1, threads=0) as bx"),
    body("threads_negative", "ValueError", ("threads",), "Y[0] = 1.0", kernel="T.Kernel(1, threads=-32) as bx"),
    body("threads_string", "ValueError", ("threads",), "Y[0] = 1.0", kernel="T.Kernel(1, threads='all') as bx"),
    body("threads_four", "ValueError", ("threads",), "Y[0] = 1.0", kernel="T.Kernel(1, threads=(1, 2, 3, 4)) as bx"),
    body("grid_string", "TypeError", ("big",), "Y[0] = 1.0", kernel="T.Kernel('big', threads=32) as bx"),
    body("grid_negative", "ValueError", ("-1",), "Y[0] = 1.0", kernel="T.Kernel(-1, threads=32) as bx"),
    body("swizzle_order", "ValueError", ("diagonal",), "T.use_swizzle(4, order='diagonal')  #!"),
    body("nested_kernel", "RuntimeError", ("kernel",), "with T.Kernel(2, threads=32) as by:  #!\n    Y[0] = 1.0"),
    body("ws_nothing", "AssertionError", ("group",), "with T.ws():  #!\n    Y[0] = 1.0"),
    body("layout_type", "ValueError", ("layout",), "s = T.alloc_shared((64, 32), 'float32')\nT.annotate_layout({s: 3})  #!"),
    body("safe_value_key", "TypeError", ("3",), "T.annotate_safe_value({3: 1.0})  #!"),
    Case(
        "default_value",
        "TileError",
        ("default",),
        source="@T.prim_func\ndef main(X: T.Tensor((4,), 'float32') = None):  #!\n    with T.Kernel(1, threads=32):\n        X[0] = 1.0\n",
    ),
    Case(
        "no_annotation",
        "TileError",
        ("X",),
        source="@T.prim_func\ndef main(X):  #!\n    with T.Kernel(1, threads=32):\n        X[0] = 1.0\n",
    ),
    Case(
        "annotation_type",
        "TypeError",
        ("X",),
        source="@T.prim_func\ndef main(X: 'a tensor'):  #!\n    with T.Kernel(1, threads=32):\n        X[0] = 1.0\n",
        line=False,
    ),
    Case(
        "tensor_dtype",
        "TypeError",
        ("flaot32",),
        source="@T.prim_func\ndef main(X: T.Tensor((4,), 'flaot32')):  #!\n    with T.Kernel(1, threads=32):\n        X[0] = 1.0\n",
        line=False,
    ),
    Case(
        "strides_count",
        "ValueError",
        ("stride",),
        source="@T.prim_func\ndef main(X: T.StridedTensor((4, 4), (4,), 'float32')):  #!\n    with T.Kernel(1, threads=32):\n        X[0, 0] = 1.0\n",
        line=False,
    ),
    Case("compile_number", "AssertionError", ("int",), source="tilelang.compile(3, target='cpu')\n", line=False),
    Case(
        "compile_target",
        "ValueError",
        ("cpuu",),
        source="@T.prim_func\ndef main(X: T.Tensor((4,), 'float32')):\n    with T.Kernel(1, threads=32):\n        X[0] = 1.0\n\n\ntilelang.compile(main, target='cpuu')\n",
        line=False,
    ),
    Case(
        "out_idx_range",
        "ValueError",
        ("7",),
        source="@T.prim_func\ndef main(X: T.Tensor((4,), 'float32')):\n    with T.Kernel(1, threads=32):\n        X[0] = 1.0\n\n\ntilelang.compile(main, out_idx=7, target='cpu')\n",
        line=False,
    ),
    Case(
        "macro_wrong_count",
        "TypeError",
        ("twice",),
        source="@T.macro\ndef twice(x):\n    x[0] = x[0] * 2.0\n\n\n@T.prim_func\ndef main(X: T.Tensor((4,), 'float32')):\n    with T.Kernel(1, threads=32):\n        twice(X, X)  #!\n",
    ),
    Case("macro_outside", "RuntimeError", ("twice",), source="@T.macro\ndef twice(x):\n    x[0] = x[0] * 2.0\n\n\ntwice(3)\n", line=False),
    Case("copy_outside", "RuntimeError", ("T.copy",), source="T.copy(1, 2)\n", line=False),
    Case(
        "eager_tensor_missing",
        "TypeError",
        ("B",),
        source="@tilelang.jit(target='cpu')\ndef f(A: T.Tensor((4,), 'float32'), B: T.Tensor((4,), 'float32')):\n    with T.Kernel(1, threads=32):\n        T.copy(A, B)\n\n\nimport numpy as np\nf(np.zeros(4, np.float32))\n",
        line=False,
    ),
    Case(
        "empty_not_returned",
        "RuntimeError",
        ("empty",),
        source="@tilelang.jit(target='cpu')\ndef f(A: T.Tensor((4,), 'float32')):\n    B = T.empty((4,), 'float32')\n    with T.Kernel(1, threads=32):\n        T.copy(A, B)\n\n\nimport numpy as np\nf(np.zeros(4, np.float32))\n",
        line=False,
    ),
]

_CALL = "import numpy as np\n\n\n@T.prim_func\ndef main(Xin: T.Tensor((64,), 'float32'), n: T.int32, Y: T.Tensor((64,), 'float32')):\n    with T.Kernel(1, threads=64):\n        for i in T.Parallel(64):\n            Y[i] = Xin[i] + n\n\n\nk = tilelang.compile(main, target='cpu')\nx, y = np.zeros(64, np.float32), np.zeros(64, np.float32)\n"


def call(name: str, raises: str, mentions: tuple[str | tuple[str, ...], ...], text: str) -> Case:
    return Case(name, raises, mentions, source=_CALL + text + "\n", line=False)


CALLS = [
    call("call_too_few", "ValueError", ("3", "2"), "k(x, 1)"),
    call("call_too_many", "ValueError", ("3", "4"), "k(x, 1, y, y)"),
    call("call_dtype", "TypeError", ("Xin", "float32", "float64"), "k(x.astype(np.float64), 1, y)"),
    call("call_shape", "ValueError", ("Xin", "64", "63"), "k(x[:63], 1, y)"),
    call("call_rank", "ValueError", ("Xin", "2"), "k(x.reshape(8, 8), 1, y)"),
    call("call_strides", "ValueError", ("Xin", "stride"), "k(np.zeros(128, np.float32)[::2], 1, y)"),
    call("call_reversed", "ValueError", ("Xin", "stride"), "k(x[::-1], 1, y)"),
    call("call_list", "TypeError", ("Xin", "list"), "k([0.0] * 64, 1, y)"),
    call("call_none", "TypeError", ("Xin", "None"), "k(None, 1, y)"),
    call("call_number_for_tensor", "TypeError", ("Xin",), "k(3.0, 1, y)"),
    call("call_float_for_int", "TypeError", ("n",), "k(x, 1.5, y)"),
    call("call_string_for_int", "TypeError", ("n",), "k(x, 'one', y)"),
    call("call_tensor_for_int", "TypeError", ("n",), "k(x, x, y)"),
    call("call_int_overflow", "ValueError", ("n",), "k(x, 2**40, y)"),
    call("call_readonly_output", "ValueError", ("Y",), "y.flags.writeable = False\nk(x, 1, y)"),
    call("call_keyword", "TypeError", ("colour",), "k(x, 1, y, colour=3)"),
]

CASES = [*ALLOCATION, *COPIES, *COMPUTE, *EXPRESSIONS, *CONTROL, *KERNELS, *CALLS]
