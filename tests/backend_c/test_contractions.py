"""Contractions in blocks of tiles, natively, against the loops they were made from."""

import ctypes
import math
import platform
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from loop_programs import Array, compiled, run_native, source

from uopc.backend_c.target import current_target
from uopc.composite import matmul
from uopc.composite.convolution import conv
from uopc.config import overriding
from uopc.dtype import DType, bf16, f16, f32, f64
from uopc.kernelize import make_plan
from uopc.rangeify import rangeify
from uopc.runtime import validate
from uopc.schedule import Target, apply_schedule, choose_schedule
from uopc.schedule.contraction import Contract, contraction
from uopc.schedule.contraction_blocks import Blocks
from uopc.schedule.step import Simplify
from uopc.tensor import Tensor
from uopc.uop import Ops, UOp, substitute, toposort

SSE = Target()
AVX2 = Target(vector_bytes=32, registers=16, fma=True, l2=512 << 10)
AVX512 = Target(vector_bytes=64, registers=32, fma=True, l2=1 << 20)
FLAGS = {SSE: (), AVX2: ("-mavx2", "-mfma", "-mf16c"), AVX512: ("-march=x86-64-v4",)}


def array(slot: int, *shape: int, dtype: DType = f32) -> UOp:
    """A buffer as an array."""
    return UOp.buffer(math.prod(shape), dtype, slot).reshape(shape)


def square(m: int, k: int, n: int, dtype: DType = f32) -> UOp:
    return matmul(array(0, m, k, dtype=dtype), array(1, k, n, dtype=dtype))


def transposed(m: int, k: int, n: int) -> UOp:
    turn = (1, 0)
    return matmul(array(0, k, m).permute(turn), array(1, n, k).permute(turn))


def by_terms(m: int, k: int, n: int, dtype: DType = f32) -> UOp:
    right = array(1, n, k, dtype=dtype).permute((1, 0))
    return matmul(array(0, m, k, dtype=dtype), right)


def batched(b: int, m: int, k: int, n: int) -> UOp:
    return matmul(array(0, b, m, k), array(1, b, k, n))


def layer(m: int, k: int, n: int) -> UOp:
    y = square(m, k, n) + array(2, 1, n).expand((m, n))
    return (y > 0).where(y, y.const_like(0.0))


def prologue(m: int, k: int, n: int) -> UOp:
    a, b = array(0, m, k), array(1, k, n)
    return matmul(a * a + 1.0, (b < 0).where(b, b * 3.0))


def wider(m: int, k: int, n: int) -> UOp:
    """Two masks of doubles over sums of floats: gcc 12 fails at wide vectors."""
    x, sums = array(2, m, n).cast(f64), square(m, k, n).cast(f64)
    zero = x.const_like(0.0)
    inner = (x * x < 1).where(zero, sums)
    return ((x < 0).where(zero, inner) + x).cast(f32)


def convolution(
    shape: tuple[int, ...], out: int, kernel: int, stride: int = 1, pad: int = 1,
    dilation: int = 1, groups: int = 1,
) -> UOp:  # fmt: skip
    x = array(0, *shape)
    w = array(1, out, shape[1] // groups, kernel, kernel)
    border = ((pad, pad), (pad, pad))
    return conv(x, w, (stride, stride), border, (dilation, dilation), groups)


PROGRAMS: dict[str, Callable[[], UOp]] = {
    "even": lambda: square(96, 512, 64),
    "odd": lambda: square(67, 331, 45),
    "primes": lambda: square(101, 103, 107),
    "skinny": lambda: square(3, 700, 130),
    "narrow": lambda: square(300, 200, 9),
    "flat": lambda: square(130, 5, 130),
    "transposed": lambda: transposed(70, 90, 50),
    "by terms": lambda: by_terms(40, 99, 43),
    "by terms f64": lambda: by_terms(40, 100, 48, f64),
    "batched": lambda: batched(5, 30, 33, 35),
    "layer": lambda: layer(64, 100, 50),
    "prologue": lambda: prologue(40, 60, 50),
    "wider": lambda: wider(50, 70, 91),
    "f64": lambda: square(50, 70, 90, f64),
    "bf16": lambda: square(50, 70, 90, bf16),
    "f16": lambda: square(50, 70, 90, f16),
    "conv": lambda: convolution((2, 3, 16, 16), 16, 3),
    "odd conv": lambda: convolution((2, 7, 9, 15), 13, 3),
    "no border": lambda: convolution((2, 3, 12, 12), 8, 3, pad=0),
    "strided": lambda: convolution((2, 4, 16, 16), 8, 3, stride=2),
    "dilated": lambda: convolution((1, 4, 16, 16), 8, 3, pad=2, dilation=2),
    "groups": lambda: convolution((2, 8, 8, 16), 16, 3, groups=2),
    "small image": lambda: convolution((4, 16, 4, 4), 24, 3),
}


def loops(u: UOp, name: str) -> UOp:
    """The loop program of what is one kernel."""
    plan, _ = make_plan([u])
    (kernel,) = plan.kernels
    return rangeify([kernel.ast], name)


def before_and_after(name: str, target: Target) -> tuple[UOp, UOp]:
    """A program as rangeify makes it, and in tiles."""
    word = name.replace(" ", "_")
    plain = loops(PROGRAMS[name](), f"{word}_plain")
    assert contraction(plain, target) is not None, name
    sink = loops(PROGRAMS[name](), f"{word}_tiled")
    return plain, apply_schedule(sink, choose_schedule(sink, target))


def inputs(program: UOp) -> dict[int, Array]:
    """Random numbers for all that a program reads."""
    rng = np.random.default_rng(0)
    nodes = toposort([program])
    written = {u.src[0] for u in nodes if u.op is Ops.STORE}
    return {
        u.arg.slot: u.dtype.round(rng.standard_normal(u.arg.size)).astype(u.dtype.numpy)
        for u in nodes
        if u.op is Ops.BUFFER and u.arg.space == "global" and u not in written
    }


# By what sums of a few hundred terms may differ, as they are added in another order. In
# the loops without tiles, products of halves are rounded before they are added.
LIMITS = {"f64": 1e-13, "by terms f64": 1e-13, "bf16": 0.2, "f16": 0.02}


def close(got: Mapping[int, Array], want: Mapping[int, Array], limit: float) -> bool:
    """Whether all results agree up to that."""
    return all(
        np.allclose(got[slot].astype("f8"), x.astype("f8"), limit, limit)
        for slot, x in want.items()
    )


@pytest.fixture(scope="module")
def here() -> Target:
    """The widest vectors that this machine has, of those compared."""
    bytes_here = current_target().vector_bytes if platform.machine() == "x86_64" else 16
    return {64: AVX512, 32: AVX2}.get(bytes_here, SSE)


@pytest.mark.parametrize("names", [list(PROGRAMS)[i::4] for i in range(4)])
def test_same_results(names: list[str], here: Target, tmp_path: Path) -> None:
    pairs = {name: before_and_after(name, here) for name in names}
    text = source([p for pair in pairs.values() for p in pair])
    library = ctypes.CDLL(str(compiled(text, tmp_path, "-O2", *FLAGS[here])))
    for name, (plain, tiled) in pairs.items():
        data = inputs(plain)
        want = run_native(library, plain, data)
        got = run_native(library, tiled, data)
        assert close(got, want, LIMITS.get(name, 1e-4)), name


def test_written_over_what_is_added(here: Target, tmp_path: Path) -> None:
    """Every element is read before it is stored, once."""
    m, k, n = 67, 300, 45
    sink = loops(square(m, k, n) + array(2, m, n), "over")
    tiled = apply_schedule(sink, choose_schedule(sink, here))
    (out,) = (
        u.src[0]
        for u in toposort([sink])
        if u.op is Ops.STORE and u.src[0].arg.space == "global"
    )
    (over,) = substitute([tiled], {out: UOp.buffer(m * n, f32, 2)})
    rng = np.random.default_rng(0)
    a, b, c = (
        rng.standard_normal(s).astype(np.float32) for s in ((m, k), (k, n), (m, n))
    )
    library = ctypes.CDLL(str(compiled(source([over]), tmp_path, "-O2", *FLAGS[here])))
    data = {0: a.ravel(), 1: b.ravel(), 2: c.ravel()}
    result = run_native(library, over, data)[2].reshape(m, n)
    np.testing.assert_allclose(result, a @ b + c, rtol=1e-4, atol=1e-4)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="names x86 processors")
@pytest.mark.parametrize("target", [SSE, AVX2, AVX512], ids=["sse", "avx2", "avx512"])
def test_other_processors_compile(target: Target, tmp_path: Path) -> None:
    names = ["odd", "f64", "wider", "bf16", "odd conv"]
    tiled = [before_and_after(name, target)[1] for name in names]
    assert compiled(source(tiled), tmp_path, "-O1", "-c", *FLAGS[target]).exists()


def test_the_strictest_check_runs_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of small contractions, whose last tile is under a condition.

    How many steps there are depends on the processor; of one shape, several.
    """
    compared: list[bool] = []
    most = 0

    def noted(*args: Any) -> bool:
        compared.append(all_near(*args))
        return compared[-1]

    all_near = validate.all_near
    monkeypatch.setattr(validate, "all_near", noted)
    b = np.full((16, 17), 2, np.float32)
    for rows in (8, 16):
        compared.clear()
        with overriding(UOPC_CHECK=3, UOPC_OPT=1):
            product = Tensor(np.ones((rows, 16), np.float32)) @ Tensor(b)
            assert (product.numpy() == 32).all()
        assert compared and all(compared)
        most = max(most, len(compared))
    assert most > 2


def test_shapes_share_their_tiles() -> None:
    """The same tile of other packed factors is the same function."""
    found: list[list[str]] = []
    for i, (m, k, n) in enumerate([(96, 64, 66), (192, 32, 130), (48, 48, 322)]):
        blocks = Blocks(6, 2, 8, k, 4 + i, 5 + i)
        step = Contract(blocks, 1, "by strips", "by columns", True, True)
        steps = [step, Simplify()]
        text = source([apply_schedule(loops(prologue(m, k, n), f"mm{i}"), steps)])
        found.append(re.findall(r"^static .* void (uopc_tile_\w+)", text, re.M))
    assert found[0] == found[1] == found[2]
    assert len(found[0]) == 1
