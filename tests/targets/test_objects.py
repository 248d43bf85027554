"""What is printed for the target of UOPC_CC compiles to objects, with no warning.

Nothing here is run, so that the processor need not have what the target has.
"""

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from uopc.autodiff import grad
from uopc.backend_c.backend import spellings
from uopc.backend_c.emit import plan_text
from uopc.backend_c.target import current_target
from uopc.backend_c.toolchain import BASE_FLAGS, find_compiler
from uopc.config import overriding
from uopc.dtype import DTYPES, DType, bf16, f16, f32, f64
from uopc.kernelize import make_plan
from uopc.runtime import backend_named
from uopc.tensor import Tensor
from uopc.testing import random_graph
from uopc.uop import UOp

FLOATS = (f32, f64, f16, bf16)
STRICT = ("-Wall", "-Wextra", "-Werror")


def array(*shape: int, dtype: DType = f32) -> Tensor:
    """An array of ones, which the reference backend makes."""
    with overriding(UOPC_BACKEND="interp"):
        return Tensor(np.ones(shape, np.float32)).cast(dtype).realize()


def graphs() -> list[UOp]:
    return [root for seed in range(100) for root in random_graph(seed).bound()]


def elementwise() -> list[Tensor]:
    """Functions, casts and choices, in whole vectors and a tail."""
    made = []
    for dtype in DTYPES.values():
        x = array(3, 1001, dtype=dtype)
        made += [x.cast(other) for other in DTYPES.values()]
        made += [x.T.maximum(x.T[::-1]), (x < x.T.reshape(3, 1001)).where(x, x[::-1])]
        if dtype.is_float:
            made += [x.exp(), x.log(), x.sin(), x.cos(), x.tanh(), x.sqrt()]
    return made


def reductions() -> list[Tensor]:
    """Over inner, outer and middle axes and all."""
    made = []
    for dtype in (*FLOATS, DTYPES["i8"], DTYPES["i64"], DTYPES["u32"]):
        x = array(7, 300, 33, dtype=dtype)
        for axis in (None, 0, 1, 2):
            made += [x.sum(axis), x.max(axis), (x * x).max(axis)]
        made += [x.argmax(1), x.argmax(2)]
    return made


def contractions() -> list[Tensor]:
    """Odd and even sizes, small and large ones, with what comes before and after."""
    made = []
    for dtype in FLOATS:
        for m, k, n in ((64, 128, 64), (67, 331, 45), (3, 700, 130), (300, 20, 9)):
            a, b = array(m, k, dtype=dtype), array(k, n, dtype=dtype)
            made += [a @ b, (a[::-1] @ b + b[0]).tanh(), a.exp() @ b]
        a = array(5, 30, 33, dtype=dtype)
        made.append(a @ a.transpose(-1, -2))
    return made


def networks() -> list[Tensor]:
    """Gradients of convolutions and of layers."""
    made: list[Tensor] = []
    for dtype in (f32, f64):
        x, w = array(2, 6, 13, 15, dtype=dtype), array(8, 3, 3, 3, dtype=dtype)

        def convolved(x: Tensor, w: Tensor) -> Tensor:
            y = x.conv2d(w, stride=2, padding=2, dilation=2, groups=2)
            return y.tanh().sum()

        a, b, c = (array(*s, dtype=dtype) for s in ((31, 70), (70, 50), (50, 9)))

        def layers(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
            return ((a @ b).maximum(0.0) @ c).softmax(1).log().mean()

        made += grad(convolved, argnums=(0, 1))(x, w)
        made += grad(layers, argnums=(0, 1, 2))(a, b, c)
    return made


@pytest.mark.parametrize("opt", [0, 1])
@pytest.mark.parametrize(
    "make", [graphs, elementwise, reductions, contractions, networks]
)
def test_programs_compile(
    make: Callable[[], Sequence[Tensor | UOp]], opt: int, tmp_path: Path
) -> None:
    with overriding(UOPC_OPT=opt):
        roots = [x.uop if isinstance(x, Tensor) else x for x in make()]
        plan, _ = make_plan(roots, None, backend_named("c").supports, "c")
        units = plan_text(plan.kernels, spellings()).units()
    width = 8 * current_target().vector_bytes
    if opt and make is elementwise:
        assert f"vector_size({width // 8})" in str(units), f"no vectors of {width} bits"
    named = {"all": units} if isinstance(units, str) else units
    flags = [flag for flag in BASE_FLAGS if flag != "-shared"]
    command = [*find_compiler().argv, *flags, *STRICT, f"-O{opt or 1}", "-c"]
    for name, text in named.items():
        file = tmp_path / f"{name}.c"
        file.write_text(text)
        words = [*command, str(file), "-o", str(file.with_suffix(".o"))]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[:4000]
