"""What the compiler prints, to the character: graphs as .uir, plans as .c.

``pytest tests/golden --update-golden`` writes the files anew after a change that is
meant to change them.
"""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from uopc import composite
from uopc.autodiff import gradient
from uopc.backend_c import emit, print_plan
from uopc.backend_c.backend import spellings
from uopc.backend_c.toolchain import BASE_FLAGS, find_compiler
from uopc.config import overriding
from uopc.dtype import i32, u8
from uopc.kernelize import make_plan
from uopc.runtime import backend_named
from uopc.schedule import Target
from uopc.testing import buf
from uopc.uir import parse_uir, to_uir
from uopc.uop import Ops, UOp

FOLDER = Path(__file__).parent / "expected"
# The files are the same on every machine, so they are made for one that is none.
TARGET = Target(32, 16, True, l1=32 << 10, l2=512 << 10, l3=32 << 20, cores=8)


def grad_product() -> UOp:
    """Both gradients of sum(x * y + x)."""
    x, y = buf(0, 3), buf(1, 3)
    return sink(*gradient((x * y + x).reduce(Ops.ADD, 1), [x, y]))


def grad_slice() -> UOp:
    """The gradient of a slice: zeros around ones, read from no buffer."""
    v = buf(0, 5)
    return sink(*gradient(v.shrink([(1, 3)]).reduce(Ops.ADD, 1), [v]))


def softmax() -> UOp:
    return sink(composite.softmax(buf(0, 12).reshape((3, 4)), 1))


def matmul_relu() -> UOp:
    """A product with an epilogue: 12 x 7 times 7 x 64."""
    x, w = buf(0, 84).reshape((12, 7)), buf(1, 448).reshape((7, 64))
    bias = composite.broadcast_to(buf(2, 64), (12, 64))
    return sink(composite.relu(composite.matmul(x, w) + bias))


def gather_bytes() -> UOp:
    """Indices from data, small integers that wrap, a sum over two axes."""
    table = buf(0, 24, u8).reshape((3, 8))
    rows = table.index(buf(1, 4, i32) % 3)
    mixed = (rows + rows) // 3 ^ rows
    nested = buf(2, 24).reshape((2, 3, 4)).reduce(Ops.ADD, 2)
    return sink(mixed, nested)


def embedding() -> UOp:
    """Rows of a table, and the table's gradient: zeros, then the rows added up."""
    table = buf(0, 15).reshape((5, 3))
    rows = table.index(buf(1, 4, i32))
    (g,) = gradient(composite.square(rows).reduce(Ops.ADD, 2), [table])
    return sink(rows, g)


def train_step() -> UOp:
    """Loss and gradients of a linear layer with relu, squared error: one plan."""
    x, w = buf(0, 80).reshape((8, 10)), buf(1, 30).reshape((10, 3))
    out = composite.relu(composite.matmul(x, w))
    loss = composite.mean(composite.square(out), (0, 1), keepdim=False)
    return sink(loss, *gradient(loss, [w]))


def sink(*roots: UOp) -> UOp:
    return UOp(Ops.SINK, roots, "roots")


PROGRAMS: dict[str, Callable[[], UOp]] = {
    f.__name__: f
    for f in (grad_product, grad_slice, softmax, matmul_relu, gather_bytes, embedding,
              train_step)
}  # fmt: skip
FILES = [f"{name}{end}" for name in PROGRAMS for end in (".uir", ".opt0.c", ".opt1.c")]


def produced(file: str) -> str:
    name, _, end = file.partition(".")
    root = PROGRAMS[name]()
    if end == "uir":
        return to_uir(root) + "\n"
    with overriding(UOPC_OPT=int(end[3])):
        plan, _ = make_plan(root.src, None, backend_named("c").supports, "c")
        return print_plan(plan, spellings())


@pytest.mark.parametrize("file", FILES)
def test_text_is_as_before(file: str, updating: bool, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(emit, "current_target", lambda: TARGET)
    path = FOLDER / file
    text = produced(file)
    if updating:
        path.write_text(text)
    assert text == path.read_text()


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_text_form_is_the_graph(name: str):
    text = (FOLDER / f"{name}.uir").read_text()
    assert parse_uir(text) is PROGRAMS[name]()


@pytest.mark.parametrize("file", [f for f in FILES if f.endswith(".c")])
def test_the_c_is_clean(file: str):
    strict = ("-fsyntax-only", "-Wall", "-Wextra", "-Werror")
    # clang warns of an option of the linker, which does not run.
    plain = [flag for flag in BASE_FLAGS if flag != "-shared"]
    command = [*find_compiler().argv, *plain, *strict, str(FOLDER / file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_no_file_is_left_over():
    assert sorted(f.name for f in FOLDER.iterdir()) == sorted(FILES)
