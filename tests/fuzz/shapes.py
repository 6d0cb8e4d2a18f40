"""Statements of random programs that stress one mechanism each: pipelined loops, views, scalars bound again in branches."""

from __future__ import annotations

import math
import random
from typing import Any

from .programs import Env, Stmt, Tile, read_padded, run_all


class Shapes:
    """Part of the generator; `Generator` has the state and the other statements."""

    rng: random.Random
    params: list[Tile]
    tiles: list[Tile]
    variables: list[str]
    loops: list[str]
    fresh: Any
    new_tile: Any
    block: Any
    gemm_of: Any
    reclamp: Any
    condition: Any
    scalar: Any
    input_dtype: Any

    # ---- pipelined loops
    def pipeline(self, depth: int) -> list[Stmt]:
        """A T.Pipelined loop with loads that depend on its variable, in front of, between and behind what uses them."""
        rng, name = self.rng, self.fresh("k")
        count, stages = rng.choice((0, 1, 2, 3, 5, 7)), rng.randint(0, 4)
        tiles, variables, stmts = list(self.tiles), list(self.variables), []
        loaded: list[Tile] = []
        for _ in range(rng.randint(1, 3)):
            tile, made = self.new_tile(scope=rng.choice(("shared.dyn", "shared", "shared.dyn", "local.fragment")))
            stmts += made
            loaded.append(tile)
        self.loops.append(name)
        body = [self.load_at(tile, name, count) for tile in loaded]
        if rng.random() < 0.4:
            product, outside = self.product_of(name, count)
            stmts += outside
            body += product
        uses = self.block(rng.randint(1, 3), min(depth - 1, 1))
        body = [*body, *uses] if rng.random() < 0.7 else [*uses, *body]
        self.loops.pop()
        self.tiles = [*tiles, *loaded]
        self.variables = variables

        def run(env: Env) -> None:
            for value in range(count):
                env.scalars[name] = value
                run_all(body, env)

        return [*stmts, Stmt([f"for {name} in T.Pipelined({count}, num_stages={stages}):"], run, body)]

    def load_at(self, tile: Tile, name: str, count: int) -> Stmt:
        """A copy whose corner moves with the loop variable, sometimes only in some iterations."""
        rng, first = self.rng, tile.shape[0]
        step = rng.choice((first, first, 1, 0))
        start = rng.choice((f"{name} * {step}", f"({max(count - 1, 0)} - {name}) * {step}", f"{name} % 2 * {step}"))
        rest = [rng.randint(0, 3) for _ in tile.shape[1:]]
        extents = [max(1, first + step * max(count - 1, 0) - rng.choice((0, 0, 3))), *(e + rng.randint(-2, 4) for e in tile.shape[1:])]
        source = Tile(self.fresh("A"), tuple(max(1, e) for e in extents), self.input_dtype(tile), "global")
        self.params.append(source)

        def run(env: Env) -> None:
            env.put(tile.name, read_padded(env.tiles[source.name], [env.value(start), *rest], tile.shape))

        copy = f"T.copy({source.name}[{', '.join([start, *map(str, rest)])}], {tile.name})"
        if rng.random() > 0.25:
            return Stmt([copy], run)
        condition = f"{name} % {rng.randint(2, 3)} == 0" if rng.random() < 0.6 else self.condition()
        return Stmt([f"if {condition}:", f"    {copy}"], lambda env: run(env) if eval(condition, {}, env.scalars) else None)

    def product_of(self, name: str, count: int) -> tuple[list[Stmt], list[Stmt]]:
        """A matrix product of two tiles that the loop loads: (statements of its body, statements before it)."""
        rng = self.rng
        m, n, k = (64, rng.choice((16, 64)), 64) if rng.random() < 0.3 else (rng.choice((8, 16, 24, 32)) for _ in range(3))
        dtype = rng.choice(("float16", "float32", "bfloat16", "int8"))
        scope = "shared.dyn"
        (a, s1), (b, s2) = self.new_tile((m, k), dtype, scope), self.new_tile((k, n), dtype, scope)
        c, s3 = self.new_tile((m, n), "int32" if dtype == "int8" else "float32", "local.fragment")

        def run(env: Env) -> None:
            env.put(c.name, env.tiles[c.name] + env.tiles[a.name] @ env.tiles[b.name])

        multiply = Stmt([f"T.gemm({a.name}, {b.name}, {c.name})"], run)
        return [self.load_at(a, name, count), self.load_at(b, name, count), multiply, self.reclamp(c)], [*s1, *s2, *s3]

    # ---- views
    def view(self) -> Stmt | None:
        """Another name for a tile, with another shape."""
        owners = [t for t in self.tiles if not t.root and math.prod(t.shape) > 1]
        if not owners:
            return None
        tile = self.rng.choice(owners)
        total = math.prod(tile.shape)
        shapes = [(total,), *((d, total // d) for d in (2, 3, 4, 5, 7, 8, 16) if total % d == 0)]
        shape = self.rng.choice([s for s in shapes if s != tile.shape] or shapes)
        name = self.fresh("t")
        spelled = self.rng.choice((f"T.reshape({tile.name}, {shape})", f"T.view({tile.name}, {shape})"))
        self.tiles.append(Tile(name, shape, tile.dtype, tile.scope, root=tile.name))

        def run(env: Env) -> None:
            env.tiles[name] = env.tiles[tile.name].reshape(shape)

        return Stmt([f"{name} = {spelled}"], run)

    # ---- scalars
    def rebind(self) -> Stmt:
        """A name that is bound, then bound again under a condition."""
        name, first, second, third = self.fresh("v"), *(f"{self.scalar()} % 50" for _ in range(3))
        condition, other = self.condition(), self.rng.random() < 0.5
        lines = [f"{name} = {first}", f"if {condition}:", f"    {name} = {second}"]
        lines += ["else:", f"    {name} = {third} + {name}"] if other else []
        self.variables.append(name)

        def run(env: Env) -> None:
            env.scalars[name] = env.value(first)
            if eval(condition, {}, env.scalars):
                env.scalars[name] = env.value(second)
            elif other:
                env.scalars[name] += env.value(third)

        return Stmt(lines, run)
