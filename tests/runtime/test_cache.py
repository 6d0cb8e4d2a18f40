"""Kept kernels: one compilation per program, safe against damage, other processes and other compilers."""

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang.errors import TileValueError, UninitializedReadWarning
from tilelang.knobs import knobs
from tilelang.runtime import cache
from tilelang.target.target import Target

ROOT = Path(__file__).resolve().parents[2]


def doubled(factor=2.0, n=32):
    @T.prim_func
    def main(A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(n):
                B[i] = A[i] * factor

    return main


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty cache, and the number of compilations counted."""
    counted = []
    original = cache.compile_program
    monkeypatch.setattr(cache, "compile_program", lambda *a, **k: counted.append(1) or original(*a, **k))
    monkeypatch.setattr(cache, "_memory", {})
    with knobs.scoped(cache_dir=tmp_path / "cache", disable_cache=False):
        tilelang.cache.clear_cache()
        yield tmp_path / "cache", counted
        tilelang.cache.clear_cache()


def forget(monkeypatch):
    """What a new process knows: nothing."""
    monkeypatch.setattr(cache, "_memory", {})


def check(kernel, factor=2.0):
    a, b = np.arange(32, dtype=np.float32), np.zeros(32, np.float32)
    kernel(a, b)
    np.testing.assert_array_equal(b, a * np.float32(factor))


def entry_of(root):
    (manifest,) = root.glob("??/*/manifest.json")
    return manifest.parent


def test_one_compilation_in_a_process(folder):
    _, counted = folder
    first = tilelang.compile(doubled(), target="cpu")
    assert tilelang.compile(doubled(), target="cpu") is first
    assert tilelang.compile(doubled(), target="cpu", out_idx=1) is not first
    assert len(counted) == 1
    check(first)


def test_from_disk(folder, monkeypatch):
    _, counted = folder
    source = tilelang.compile(doubled(), target="cpu").get_kernel_source()
    forget(monkeypatch)
    kernel = tilelang.compile(doubled(), target="cpu", out_idx=[1])
    assert len(counted) == 1
    # LLVM prints the same code with other comments and another file name.
    assert len(kernel.get_kernel_source()) > 0.9 * len(source)
    np.testing.assert_array_equal(kernel(np.ones(32, np.float32)), np.full(32, 2, np.float32))


def test_another_process_finds_it(folder):
    root, _ = folder
    code = """
import sys, time
import numpy as np
import tests.runtime.test_cache as t
from tilelang.runtime import cache
compiled = []
original = cache.compile_program
cache.compile_program = lambda *a, **k: compiled.append(1) or original(*a, **k)
program = t.doubled()
cache.compiler_fingerprint = lambda: "this compiler"  # its files may be under edit
start = time.perf_counter()
kernel = t.tilelang.compile(program, target="cpu")
seconds = time.perf_counter() - start
t.check(kernel)
print(len(compiled), seconds)
"""
    results = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
            env={**os.environ, "TILELANG_CACHE_DIR": str(root)},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-2000:]
        results.append(done.stdout.split())
    assert [r[0] for r in results] == ["1", "0"]


@pytest.mark.parametrize("damage", ["truncate", "flip", "delete", "extra", "manifest", "no manifest", "empty manifest", "foreign manifest"])
def test_damaged_entries_are_compiled_again(folder, monkeypatch, damage):
    root, counted = folder
    tilelang.compile(doubled(), target="cpu")
    entry = entry_of(root)
    manifest = entry / "manifest.json"
    victim = max((entry / "artifact").iterdir(), key=lambda p: p.stat().st_size)
    data = victim.read_bytes()
    if damage == "truncate":
        victim.write_bytes(data[: len(data) // 2])
    elif damage == "flip":
        victim.write_bytes(data[:100] + bytes([data[100] ^ 1]) + data[101:])
    elif damage == "delete":
        victim.unlink()
    elif damage == "extra":
        (entry / "artifact" / "more").write_text("x")
    elif damage == "manifest":
        manifest.write_text(manifest.read_text()[:-5])
    elif damage == "no manifest":
        manifest.unlink()
    elif damage == "empty manifest":
        manifest.write_text("{}")
    else:
        manifest.write_text(json.dumps([1]))
    forget(monkeypatch)
    check(tilelang.compile(doubled(), target="cpu"))
    assert len(counted) == 2
    forget(monkeypatch)
    check(tilelang.compile(doubled(), target="cpu"))
    assert len(counted) == 2, "the new entry is good again"


def test_what_decides_the_code_is_in_the_key(folder, monkeypatch):
    cpu = Target("cpu")

    def key(program=None, target=cpu, config=None):
        return cache.cache_key(program or doubled(), target, config or {})

    base = key()
    assert key() == base, "the same program traced twice"
    assert key(doubled(2.0000002)) != base
    assert key(doubled(0.0)) != key(doubled(-0.0))
    assert key(doubled(n=33)) != base
    assert key(target=Target("cpu", (("mcpu", "x86-64-v3"),))) != base
    assert key(config={"tl.enable_fast_math": True}) != base
    with knobs.scoped(cpu="x86-64-v2"):
        assert key() != base
    monkeypatch.setattr(cache, "compiler_fingerprint", lambda: "another compiler")
    assert key() != base


def test_positions_count_only_where_a_message_tells_them(folder):
    def plain(path):
        return doubled().with_attr("tl.source", path)

    def asserting(path):
        @T.prim_func
        def main(A: T.Tensor((32,), "int32")):
            with T.Kernel(1, threads=32):
                for i in T.Parallel(32):
                    T.device_assert(A[i] > 0, "positive")

        return main.with_attr("tl.source", path)

    cpu = Target("cpu")
    assert cache.cache_key(plain("a:1"), cpu, {}) == cache.cache_key(plain("b:2"), cpu, {})
    assert cache.cache_key(asserting("a:1"), cpu, {}) != cache.cache_key(asserting("b:2"), cpu, {})


def test_disabled(folder):
    root, counted = folder
    with knobs.scoped(disable_cache=True):
        assert not tilelang.is_cache_enabled()
        first, second = (tilelang.compile(doubled(), target="cpu") for _ in range(2))
    assert first is not second
    assert len(counted) == 2
    assert not root.exists() or not list(root.glob("??/*"))
    check(second)


def test_clear_removes_only_its_own(folder):
    root, counted = folder
    tilelang.compile(doubled(), target="cpu")
    (root / "notes.txt").write_text("keep")
    (root / "ab" / "mine").mkdir(parents=True, exist_ok=True)
    tilelang.cache.clear_cache()
    assert (root / "notes.txt").exists()
    assert (root / "ab" / "mine").exists()
    assert not list(root.glob("??/*/manifest.json"))
    tilelang.compile(doubled(), target="cpu")
    assert len(counted) == 2


def test_folder_that_cannot_be_written(folder, tmp_path):
    _, counted = folder
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    with knobs.scoped(cache_dir=blocked / "cache"):
        check(tilelang.compile(doubled(3.0), target="cpu"), 3.0)
    assert len(counted) == 1


def test_processes_at_the_same_time(folder):
    root, _ = folder
    code = (
        "import tests.runtime.test_cache as t; t.cache.compiler_fingerprint = lambda: 'this'; "
        "t.check(t.tilelang.compile(t.doubled(), target='cpu')); print('right')"
    )
    env = {**os.environ, "TILELANG_CACHE_DIR": str(root)}
    running = [subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True, env=env) for _ in range(3)]
    assert [p.communicate(timeout=120)[0].strip() for p in running] == ["right"] * 3
    assert entry_of(root)
    assert not list(root.glob(".new-*"))


def test_settings():
    before = tilelang.get_cache_dir()
    with knobs.scoped():
        tilelang.set_cache_dir("/tmp/elsewhere")
        assert tilelang.get_cache_dir() == "/tmp/elsewhere"
        assert str(tilelang.env.TILELANG_CACHE_DIR) == "/tmp/elsewhere"
        tilelang.disable_cache()
        assert not tilelang.is_cache_enabled()
        tilelang.enable_cache()
        assert tilelang.is_cache_enabled()
    assert tilelang.get_cache_dir() == before


def test_warnings_are_given_for_a_program_from_the_cache_too():
    @T.prim_func
    def main(Y: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=8):
            never_written = T.alloc_shared((8,), "float32")
            T.copy(never_written, Y)

    for _ in range(2):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            tilelang.compile(main, target="cpu")
        assert [w.category for w in seen] == [UninitializedReadWarning]
    with knobs.scoped(strict=True), pytest.raises(TileValueError, match="never_written"):
        tilelang.compile(main, target="cpu")
