"""Builds a random `Program` from a seed: which tiles exist, which statements act on them, in what order."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import numpy as np

from .programs import (
    FLOATS,
    INTS,
    LIMIT,
    Break,
    Continue,
    Env,
    Expr,
    Program,
    Stmt,
    Tile,
    choose_shape,
    clamp,
    read_padded,
    run_all,
    write_clipped,
)
from .shapes import Shapes

SCOPES = ("shared.dyn", "shared", "local.fragment")
ALLOC = {
    "shared.dyn": "T.alloc_shared({s}, {d!r})",
    "shared": "T.alloc_shared({s}, {d!r}, scope='shared')",
    "local.fragment": "T.alloc_fragment({s}, {d!r})",
}


class Generator(Shapes):
    """One program. Tiles are allocated and initialised before anything reads them."""

    def __init__(self, seed: int):
        self.seed, self.rng = seed, random.Random(seed)
        self.params: list[Tile] = []
        self.outputs: list[int] = []
        self.tiles: list[Tile] = []
        self.variables: list[str] = []
        self.loop_depth = 0
        self.count = 0

    # ---- helpers
    def fresh(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def pick(self, tiles: Sequence[Tile]) -> Tile:
        return self.rng.choice(list(tiles))

    def scalar(self) -> str:
        """A block-uniform integer expression."""
        names = [*self.blocks, *self.variables, *self.loops]
        kind = self.rng.randrange(4)
        if kind == 0 or not names:
            return str(self.rng.randint(-4, 9))
        name = self.rng.choice(names)
        if kind == 1:
            return name
        return f"({name} {self.rng.choice('+-*')} {self.rng.randint(1, 5)})" if kind == 2 else f"({name} % {self.rng.randint(2, 6)})"

    def condition(self) -> str:
        op = self.rng.choice(("<", "<=", ">", "==", "!="))
        text = f"{self.scalar()} {op} {self.rng.randint(-2, 6)}"
        if self.rng.random() < 0.3:
            text = f"({text}) {self.rng.choice(('and', 'or'))} ({self.scalar()} >= {self.rng.randint(-2, 4)})"
        return f"not ({text})" if self.rng.random() < 0.15 else text

    # ---- tiles
    def new_tile(self, shape: tuple[int, ...] | None = None, dtype: str | None = None, scope: str | None = None) -> tuple[Tile, list[Stmt]]:
        shape = shape or choose_shape(self.rng, self.rng.choice((1, 2, 2, 2, 3)))
        tile = Tile(self.fresh("t"), shape, dtype or self.rng.choice((*FLOATS, *INTS)), scope or self.rng.choice(SCOPES))
        spelled = ALLOC[tile.scope].format(s=shape if len(shape) > 1 or self.rng.random() < 0.5 else math.prod(shape), d=tile.dtype)

        def allocate(env: Env) -> None:
            env.tiles[tile.name] = np.zeros(shape, np.int64)

        stmts = [Stmt([f"{tile.name} = {spelled}"], allocate), self.rng.choice((self.load, self.fill))(tile)]
        self.tiles.append(tile)
        return tile, stmts

    def fill(self, tile: Tile) -> Stmt:
        value = self.rng.randint(tile.low, LIMIT)
        text = f"T.clear({tile.name})" if value == 0 else f"T.fill({tile.name}, {value})"
        return Stmt([text], lambda env: env.tiles[tile.name].fill(value))

    def load(self, tile: Tile) -> Stmt:
        """Copy from a global tensor: a corner that may lie outside, or explicit slices inside or across the edge."""
        rank = len(tile.shape)
        source = Tile(
            self.fresh("A"),
            tuple(e + self.rng.randint(0, 20) for e in (*[2] * self.rng.randint(0, 1), *tile.shape)),
            self.input_dtype(tile),
            "global",
        )
        if self.rng.random() < 0.03:  # a tensor without elements reads as zeros
            empty = self.rng.randrange(len(source.shape))
            source.shape = tuple(0 if d == empty else e for d, e in enumerate(source.shape))
        self.params.append(source)
        lead = len(source.shape) - rank
        # never a plain negative number: that would count from the end
        mins = [f"(bx + {self.rng.randint(-3, 12)})" if self.rng.random() < 0.5 else str(self.rng.randint(0, 12)) for _ in range(rank)]
        head = [str(self.rng.randint(0, 1))] * lead

        def run(env: Env) -> None:
            at = [int(h) for h in head] + [env.value(m) for m in mins]
            env.tiles[tile.name][...] = read_padded(env.tiles[source.name], at, [1] * lead + list(tile.shape)).reshape(tile.shape)

        if self.rng.random() < 0.5:
            where = ", ".join([*head, *mins])
        else:
            where = ", ".join([*head, *[f"{m}:{m} + {e}" for m, e in zip(mins, tile.shape, strict=True)]])
        return Stmt([f"T.copy({source.name}[{where}], {tile.name})"], run)

    def input_dtype(self, tile: Tile) -> str:
        return tile.dtype if tile.dtype == "uint8" or self.rng.random() < 0.6 else self.rng.choice((*FLOATS, *INTS))

    # ---- elementwise expressions
    def element(self, shape: tuple[int, ...], dest: Tile, depth: int = 2) -> Expr:
        rng, names = self.rng, "ijk"[: len(shape)]
        kind = rng.random()
        if depth == 0 or kind < 0.45:
            same = [t for t in self.tiles if t.shape == shape and (t is dest or t.storage != dest.storage)]
            rows = [t for t in self.tiles if len(t.shape) == 1 and t.shape[0] in shape and t.storage != dest.storage]
            choice = rng.randrange(5)
            if choice <= 1 and same:
                t = self.pick(same)
                return Expr(t.read(", ".join(names)), lambda env, g: env.tiles[t.name][tuple(g)], LIMIT, t.dtype in INTS)
            if choice == 2 and rows:
                t = self.pick(rows)
                d = shape.index(t.shape[0])
                return Expr(t.read(names[d]), lambda env, g: env.tiles[t.name][g[d]], LIMIT, t.dtype in INTS)
            if choice == 3:
                d, m = rng.randrange(len(shape)), rng.randint(2, 9)
                return Expr(f"({names[d]} % {m})", lambda env, g: g[d] % m, m, True)
            if choice == 4 and self.variables:
                name = rng.choice(self.variables)
                return Expr(f"({name} % 7)", lambda env, g: env.scalars[name] % 7, 7, True)
            value = rng.randint(-LIMIT, LIMIT)
            return Expr(f"({value})", lambda env, g: value, LIMIT, True)
        a, b = self.element(shape, dest, depth - 1), self.element(shape, dest, depth - 1)
        if kind < 0.7:
            op = rng.choice("+-")
            sign = 1 if op == "+" else -1
            return Expr(
                f"({a.text} {op} {b.text})",
                lambda env, g: a.value(env, g) + sign * b.value(env, g),
                a.bound + b.bound,
                a.integer and b.integer,
            )
        if kind < 0.78 and a.bound * b.bound <= 2000:
            return Expr(
                f"({a.text} * {b.text})", lambda env, g: a.value(env, g) * b.value(env, g), a.bound * b.bound, a.integer and b.integer
            )
        if kind < 0.86:
            return Expr(
                f"T.max({a.text}, {b.text})",
                lambda env, g: np.maximum(a.value(env, g), b.value(env, g)),
                max(a.bound, b.bound),
                a.integer and b.integer,
            )
        c = rng.randint(-5, 5)
        spelled = (
            f"T.if_then_else({a.text} > {c}, {b.text}, {a.text})" if rng.random() < 0.5 else f"({b.text} if {a.text} > {c} else {a.text})"
        )
        return Expr(
            spelled,
            lambda env, g: np.where(a.value(env, g) > c, b.value(env, g), a.value(env, g)),
            max(a.bound, b.bound),
            a.integer and b.integer,
        )

    def small(self, dest: Tile, shape: tuple[int, ...]) -> Expr:
        """An expression whose intermediate values every type involved holds exactly."""
        e = self.element(shape, dest)
        while e.bound > (120 if dest.dtype == "int8" or e.integer else 2000):
            e = self.element(shape, dest)
        return Expr(f"T.clamp({e.text}, {dest.low}, {LIMIT})", lambda env, g: clamp(e.value(env, g), dest.low), LIMIT, e.integer)

    # ---- statements
    def takers(self, src: Tile) -> list[Tile]:
        """Other tiles of its shape that can hold its values."""
        return [t for t in self.tiles if t.shape == src.shape and t.storage != src.storage and t.low <= src.low]

    def parallel(self) -> Stmt:
        dest = self.pick(self.tiles)
        names, e = "ijk"[: len(dest.shape)], self.small(dest, dest.shape)
        guard = self.rng.random() < 0.3
        d, c = self.rng.randrange(len(dest.shape)), self.rng.randint(0, 20)
        head = [f"for {', '.join(names)} in T.Parallel({', '.join(map(str, dest.shape))}):"]
        target = f"{dest.name}[{', '.join(names)}]"
        head += [f"    if {names[d]} < {c}:", f"        {target} = {e.text}"] if guard else [f"    {target} = {e.text}"]

        def run(env: Env) -> None:
            g = np.meshgrid(*[np.arange(n) for n in dest.shape], indexing="ij")
            value = np.broadcast_to(e.value(env, g), dest.shape)
            env.put(dest.name, np.where(g[d] < c, value, env.tiles[dest.name]) if guard else value)

        return Stmt(head, run)

    def shifted(self) -> Stmt | None:
        """Read a shared tile at a shifted index, guarded by the index."""
        sources = [t for t in self.tiles if len(t.shape) == 2 and t.scope != "local.fragment"]
        if not sources:
            return None
        src = self.pick(sources)
        dests = self.takers(src)
        if not dests:
            return None
        dest, (m, n), dy, dx = self.pick(dests), src.shape, self.rng.randint(-2, 2), self.rng.randint(-2, 2)
        inside = f"i + {dy} >= 0 and i + {dy} < {m} and j + {dx} >= 0 and j + {dx} < {n}"
        text = f"T.if_then_else({inside}, {src.read(f'i + {dy}, j + {dx}')}, 1)"

        def run(env: Env) -> None:
            value = np.ones(dest.shape, np.int64)
            i, j = np.meshgrid(np.arange(m), np.arange(n), indexing="ij")
            ok = (i + dy >= 0) & (i + dy < m) & (j + dx >= 0) & (j + dx < n)
            value[ok] = env.tiles[src.name][(i + dy)[ok], (j + dx)[ok]]
            env.put(dest.name, value)

        return Stmt([f"for i, j in T.Parallel({m}, {n}):", f"    {dest.name}[i, j] = {text}"], run)

    def copy(self) -> Stmt | None:
        src = self.pick(self.tiles)
        dests = self.takers(src)
        if not dests:
            return None
        dest = self.pick(dests)

        def run(env: Env) -> None:
            env.put(dest.name, env.tiles[src.name].reshape(dest.shape))

        return Stmt([f"T.copy({src.name}, {dest.name})"], run)

    def reduce(self) -> list[Stmt] | None:
        src = self.pick(self.tiles)
        dim = self.rng.randrange(len(src.shape))
        shape = tuple(e for d, e in enumerate(src.shape) if d != dim) or (1,)
        kind = self.rng.choice(("sum", "max", "min", "absmax", "abssum"))
        exact = {"float16": 2000, "bfloat16": 250, "float32": 1 << 24, "int32": 1 << 30}.get(src.dtype, 0)
        if (kind in ("sum", "abssum") and src.shape[dim] * LIMIT > exact) or src.dtype.startswith("float8") or (
            src.dtype == "uint8" and kind == "absmax"
        ):  # fmt: skip
            return None
        dtype = src.dtype
        out, stmts = self.new_tile(shape, dtype)
        clear = kind == "abssum" or self.rng.random() < 0.6
        spelled_dim = dim if self.rng.random() < 0.5 else dim - len(src.shape)
        extra = "" if kind == "abssum" or (clear and self.rng.random() < 0.5) else f", clear={clear}"

        def run(env: Env) -> None:
            x, old = env.tiles[src.name], env.tiles[out.name]
            fns = {"sum": x.sum, "max": x.max, "min": x.min, "absmax": abs(x).max, "abssum": abs(x).sum}
            got = fns[kind](axis=dim).reshape(shape)
            joined = {"sum": np.add, "max": np.maximum, "min": np.minimum, "absmax": np.maximum, "abssum": np.add}[kind]
            env.put(out.name, got if clear else joined(abs(old) if kind == "absmax" else old, got))

        return [
            *stmts,
            *self.non_negative(out, kind),
            Stmt([f"T.reduce_{kind}({src.name}, {out.name}, dim={spelled_dim}{extra})"], run),
            self.reclamp(out),
        ]

    def non_negative(self, out: Tile, kind: str) -> list[Stmt]:
        """An absmax accumulator holds absolute values."""
        if kind != "absmax":
            return []
        return [Stmt([f"T.fill({out.name}, 3)"], lambda env: env.tiles[out.name].fill(3))]

    def reclamp(self, tile: Tile) -> Stmt:
        names = "ijk"[: len(tile.shape)]
        at = f"{tile.name}[{', '.join(names)}]"

        def run(env: Env) -> None:
            env.put(tile.name, clamp(env.tiles[tile.name], tile.low))

        loop = f"for {', '.join(names)} in T.Parallel({', '.join(map(str, tile.shape))}):"
        return Stmt([loop, f"    {at} = T.clamp({tile.read(', '.join(names))}, {tile.low}, {LIMIT})"], run)

    def scan(self) -> list[Stmt] | None:
        options = [t for t in self.tiles if t.dtype in ("int32", "float32") and len(t.shape) <= 2]
        if not options:
            return None
        tile = self.pick(options)
        dim, reverse = self.rng.randrange(len(tile.shape)), self.rng.random() < 0.4

        def run(env: Env) -> None:
            x = env.tiles[tile.name]
            x = np.flip(np.cumsum(np.flip(x, dim), axis=dim), dim) if reverse else np.cumsum(x, axis=dim)
            env.put(tile.name, x)

        return [Stmt([f"T.cumsum({tile.name}, dim={dim}{', reverse=True' if reverse else ''})"], run), self.reclamp(tile)]

    def gemm(self) -> list[Stmt]:
        m, n, k = (self.rng.choice((4, 8, 16, 17, 24, 32)) for _ in range(3))
        dtype = self.rng.choice(("float32", "float16", "int8", "bfloat16", "float8_e4m3fn"))
        ta, tb, clear = (self.rng.random() < 0.4 for _ in range(3))
        a, s1 = self.new_tile((k, m) if ta else (m, k), dtype, self.rng.choice(("shared.dyn", "shared")))
        b, s2 = self.new_tile((n, k) if tb else (k, n), dtype, self.rng.choice(("shared.dyn", "shared")))
        c, s3 = self.new_tile((m, n), "int32" if dtype == "int8" else "float32", "local.fragment")
        options = "".join([", transpose_A=True" if ta else "", ", transpose_B=True" if tb else "", ", clear_accum=True" if clear else ""])

        def run(env: Env) -> None:
            x, y = env.tiles[a.name], env.tiles[b.name]
            product = (x.T if ta else x) @ (y.T if tb else y)
            env.put(c.name, product if clear else env.tiles[c.name] + product)

        return [*s1, *s2, *s3, Stmt([f"T.gemm({a.name}, {b.name}, {c.name}{options})"], run), self.reclamp(c)]

    # ---- scalars and control flow
    def variable(self) -> Stmt:
        name, value = self.fresh("v"), self.rng.randint(-5, 9)
        self.variables.append(name)
        spelled = self.rng.choice(
            (f"{name} = T.alloc_var('int32', {value})", f"{name} = T.alloc_var('int32', init={value})", f"{name} = {value}")
        )

        def run(env: Env) -> None:
            env.scalars[name] = value

        return Stmt([spelled], run)

    def update(self) -> Stmt | None:
        if not self.variables:
            return None
        name = self.rng.choice(self.variables)
        text = f"({name} * {self.rng.randint(1, 3)} + {self.scalar()}) % {self.rng.randint(5, 50)}"
        if self.rng.random() < 0.3:
            vectors = [t for t in self.tiles if t.dtype in INTS]
            if vectors:
                t = self.pick(vectors)
                index = tuple(self.rng.randrange(e) for e in t.shape)
                return Stmt(
                    [f"{name} = {name} + {t.read(', '.join(map(str, index)))}"],
                    lambda env: env.scalars.__setitem__(name, env.scalars[name] + int(env.tiles[t.name][index])),
                )
        return Stmt([f"{name} = {text}"], lambda env: env.scalars.__setitem__(name, env.value(text)))

    def nested(self, depth: int) -> list[Stmt]:
        """Statements of a body; tiles and variables made inside stay inside."""
        tiles, variables = list(self.tiles), list(self.variables)
        body = self.block(self.rng.randint(1, 3), depth - 1)
        self.tiles, self.variables = tiles, variables
        return body

    def branch(self, depth: int) -> Stmt:
        condition = self.condition()
        body = self.nested(depth)
        orelse = self.nested(depth) if self.rng.random() < 0.5 else []
        head = [f"if {condition}:"] + [line for s in body for line in s.lines(1)]
        if orelse:
            head += ["else:"] + [line for s in orelse for line in s.lines(1)]

        def run(env: Env) -> None:
            run_all(body if eval(condition, {}, env.scalars) else orelse, env)

        return Stmt(head, run)

    def loop(self, depth: int) -> Stmt:
        name, kind = self.fresh("k"), self.rng.choice(("serial", "range", "unroll", "Pipelined", "step"))
        count = self.rng.randint(0, 4)
        start = self.rng.randint(0, 2)
        values = {
            "serial": range(count),
            "range": range(start, start + count),
            "unroll": range(count),
            "Pipelined": range(count),
            "step": range(6, 6 - 2 * count, -2),
        }[kind]
        spelled = {
            "serial": f"T.serial({count})", "range": f"range({start}, {start + count})", "unroll": f"T.unroll({count})",
            "Pipelined": f"T.Pipelined({count}, num_stages={self.rng.randint(0, 3)})", "step": f"T.serial(6, {6 - 2 * count}, -2)",
        }[kind]  # fmt: skip
        self.loops.append(name)
        body = self.nested(depth)
        jump = None
        if kind in ("serial", "range") and self.rng.random() < 0.4:
            jump = self.rng.choice(("break", "continue"))
            condition = self.condition()
            exc = Break if jump == "break" else Continue

            def leave(env: Env) -> None:
                if eval(condition, {}, env.scalars):
                    raise exc

            body = [*body, Stmt([f"if {condition}:", f"    {jump}"], leave)]
            self.rng.shuffle(body)
            body = self.fix_order(body)
        self.loops.pop()

        def run(env: Env) -> None:
            for value in values:
                env.scalars[name] = value
                try:
                    run_all(body, env)
                except Continue:
                    continue
                except Break:
                    break

        return Stmt([f"for {name} in {spelled}:"], run, body)

    @staticmethod
    def fix_order(body: list[Stmt]) -> list[Stmt]:
        """Put the jump first or last: statements in between may need the tiles made before them."""
        jumps = [s for s in body if s.head[-1].strip() in ("break", "continue")]
        rest = sorted((s for s in body if s not in jumps), key=lambda s: getattr(s, "order", 0))
        return [*jumps, *rest] if body.index(jumps[0]) * 2 < len(body) else [*rest, *jumps]

    def repeat(self, depth: int) -> list[Stmt]:
        """A while loop that counts a variable of its own down."""
        name, count = self.fresh("w"), self.rng.randint(0, 4)
        self.loops.append(name)
        body = self.nested(depth)
        self.loops.pop()

        def start(env: Env) -> None:
            env.scalars[name] = count

        def run(env: Env) -> None:
            while env.scalars[name] > 0:
                run_all(body, env)
                env.scalars[name] -= 1

        step = Stmt([f"{name} = {name} - 1"], lambda env: None)
        return [Stmt([f"{name} = T.alloc_var('int32', {count})"], start), Stmt([f"while {name} > 0:"], run, [*body, step])]

    def block(self, count: int, depth: int) -> list[Stmt]:
        stmts: list[Stmt] = []
        makers = [self.parallel] * 4 + [
            self.shifted,
            self.copy,
            self.reduce,
            self.scan,
            self.gemm,
            self.update,
            self.update,
            self.variable,
            self.rebind,
            self.view,
            self.new_stmts,
        ]
        if depth > 0:
            makers += [lambda: self.branch(depth), lambda: self.loop(depth), lambda: self.loop(depth), lambda: self.repeat(depth)]
            makers += [lambda: self.pipeline(depth)] * 2
        for _ in range(count):
            made = self.rng.choice(makers)()
            if made is not None:
                stmts += made if isinstance(made, list) else [made]
        for order, stmt in enumerate(stmts):
            stmt.order = order  # type: ignore[attr-defined]
        return stmts or [self.parallel()]

    def new_stmts(self) -> list[Stmt]:
        return self.new_tile()[1]

    # ---- results
    def save(self, tile: Tile) -> Stmt:
        """Write a tile into its own slice of an output, one slice a block."""
        grid = self.grid
        cut = tuple(max(1, e - self.rng.choice((0, 0, 1, 3))) for e in tile.shape)  # the last rows may fall outside
        out = Tile(self.fresh("Y"), (*reversed(grid), *cut), self.rng.choice((tile.dtype, "float32", "int32")), "global")
        self.outputs.append(len(self.params))
        self.params.append(out)
        lead = list(reversed(self.blocks))
        where = ", ".join([*lead, *["0"] * len(tile.shape)])
        elementwise = self.rng.random() < 0.4
        names = "ijk"[: len(tile.shape)]
        head = [f"T.copy({tile.name}, {out.name}[{where}])"]
        if elementwise:
            head = [
                f"for {', '.join(names)} in T.Parallel({', '.join(map(str, tile.shape))}):",
                f"    {out.name}[{', '.join([*lead, *names])}] = {tile.name}[{', '.join(names)}]",
            ]

        def run(env: Env) -> None:
            at = [env.scalars[b] for b in lead] + [0] * len(tile.shape)
            write_clipped(env.tiles[out.name], at, env.tiles[tile.name].reshape((1,) * len(lead) + tile.shape))

        return Stmt(head, run)

    def save_scalars(self) -> list[Stmt]:
        """Add every variable into a counter shared by all blocks, element by element."""
        if not self.variables:
            return []
        out = Tile(self.fresh("N"), (len(self.variables),), "int32", "global")
        self.outputs.append(len(self.params))
        self.params.append(out)
        self.inits[out.name] = 0
        stmts = []
        for k, name in enumerate(self.variables):
            tile = Tile(self.fresh("s"), (1,), "int32", "local.fragment")

            def run(env: Env, k: int = k, name: str = name) -> None:
                env.tiles[out.name][k] += env.scalars[name]

            stmts.append(Stmt([f"for i in T.Parallel(1):  # {tile.name}", f"    T.atomic_add({out.name}[{k}], {name})"], run))
        return stmts

    def program(self) -> Program:
        rng = self.rng
        self.grid = tuple(rng.randint(1, 3) if rng.random() > 0.01 else 0 for _ in range(rng.randint(1, 2)))
        self.blocks, self.loops, self.inits = ["bx", "by"][: len(self.grid)], [], {}
        body: list[Stmt] = []
        for _ in range(rng.randint(1, 3)):
            body += self.new_tile()[1]
        body += self.block(rng.randint(2, 7), 2)
        for tile in rng.sample(self.tiles, min(len(self.tiles), 3)):
            body.append(self.save(tile))
        body += self.save_scalars()
        threads = rng.choice((32, 64, 128, 96, 100, 256, 1, 31, 48, 160, 384))
        params = ", ".join(f"{p.name}: T.Tensor({p.shape}, {p.dtype!r})" for p in self.params)
        index = self.blocks[0] if len(self.blocks) == 1 else f"({', '.join(self.blocks)})"
        lines = [
            "import tilelang.language as T",
            "",
            "",
            "@T.prim_func",
            f"def main({params}):",
            f"    with T.Kernel({', '.join(map(str, self.grid))}, threads={threads}) as {index}:",
        ]
        for stmt in body:
            lines += stmt.lines(2)
        return Program(self.seed, "\n".join(lines) + "\n", self.params, self.outputs, self.grid, body, self.inits)


def generate(seed: int) -> Program:
    """The program of this seed; the same seed always gives the same program."""
    return Generator(seed).program()
