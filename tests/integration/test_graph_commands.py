"""`uopc grad` and `uopc compile`: graphs in files, to gradients and to C."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from uopc import cli
from uopc.autodiff import gradient
from uopc.backend_c import CBackend
from uopc.backend_c.target import current_target
from uopc.config import overriding
from uopc.dtype import f32
from uopc.kernelize import make_plan, plan_graph
from uopc.runtime import lower_nest, nests_of
from uopc.testing import buf, random_graph
from uopc.uir import parse_nodes, parse_uir, to_uir
from uopc.uop import Ops, UOp

GRAPH = """\
%2 = buffer 12 : dtype=f32 slot=0
%5 = reshape %2, (4, 3)
%7 = buffer 3 : dtype=f32 slot=1
%8 = reshape %7, (1, 3)
%9 = expand %8, (4, 3)
%10 = mul %5, %9   # x * w
%11 = iota 12
%20 = reduce %10, add, 1
"""


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Any:
    """``run(command, text, *words)``: status, stdout and stderr, on a file of text."""

    def run(command: str, text: str, *words: str) -> tuple[int, str, str]:
        path = tmp_path / "graph.uir"
        path.write_text(text)
        code = cli.main([command, str(path), *words])
        captured = capsys.readouterr()
        return code, captured.out, captured.err.replace(str(path), "FILE")

    return run


def test_the_gradient_by_the_numbers_of_the_file(run: Any, tmp_path: Path) -> None:
    nodes = parse_nodes(GRAPH)
    (wanted,) = gradient(nodes["%20"], [nodes["%7"]])
    for name in ("%7", "7"):
        code, out, err = run("grad", GRAPH, "--wrt", name)
        assert (code, err) == (0, "")
        assert out == to_uir(wanted) + "\n"
    out = tmp_path / "out.uir"
    assert run("grad", GRAPH, "--wrt", "%7", "-o", str(out)) == (0, "", "")
    assert parse_uir(out.read_text()) is wanted


def test_several_gradients_are_one_sink(run: Any) -> None:
    nodes = parse_nodes(GRAPH)
    both = gradient(nodes["%20"], [nodes["%7"], nodes["%10"]])
    code, out, _ = run("grad", GRAPH, "--wrt", "%7", "--wrt", "%10")
    assert code == 0
    assert parse_uir(out) is UOp(Ops.SINK, tuple(both), "gradients")


def test_a_sink_of_one_root_and_a_param(run: Any) -> None:
    text = "%0 = param 0 : dtype=f32 shape=(2,)\n%1 = sin %0\n%2 = sink %1, loss"
    code, out, _ = run("grad", text, "--wrt", "%0")
    assert code == 0
    x = UOp.param(0, f32, (2,))
    assert [parse_uir(out)] == gradient(x.sin(), [x])


GRAD_ERRORS = {
    "unknown": (GRAPH, "%3", "FILE has no node '%3'; it has %2 to %20"),
    "no name": (GRAPH, "x;y", "FILE has no node 'x;y'; it has %2 to %20"),
    "only one": ("%4 = iota 3", "%0", "FILE has no node '%0'; it has %4"),
    "integer": (GRAPH, "%11", "FILE: %11 has dtype i32, which has no derivative"),
    "root": (GRAPH + "%21 = cast %20 : dtype=i8", "%7",
             "FILE: the root has dtype i8, which has no derivative"),
    "roots": (GRAPH + "%21 = sink %20, %9, x", "%7",
              "FILE: a gradient is of one node, and the sink holds 2"),
    "none": (GRAPH + "%21 = sink x", "%7",
             "FILE: a gradient is of one node, and the sink holds 0"),
    "loops": ("%0 = range 0, 3 : dtype=i32\n%1 = cast %0 : dtype=f32", "%1",
              "FILE: no gradient rule for range (autodiff only works on pure"),
    "store": ("%0 = buffer 1 : dtype=f32 slot=0\n%1 = store %0, 0, 1.0", "%0",
              "FILE: the root has dtype void, which has no derivative"),
    "text": ("%0 = iota", "%0", "FILE: line 1, column 10: expected 'iota n', got"),
}  # fmt: skip


@pytest.mark.parametrize("name", GRAD_ERRORS)
def test_grad_explains(run: Any, name: str) -> None:
    text, target, message = GRAD_ERRORS[name]
    code, out, err = run("grad", text, "--wrt", target)
    assert (code, out) == (1, "")
    assert err.startswith(f"uopc: {message}")
    assert err.count("\n") == 1


@pytest.mark.parametrize("words", [("grad", "x"), ("compile", "--opt", "7", "x")])
def test_wrong_usage_is_status_2(run_uopc: Any, words: tuple[str, ...]) -> None:
    assert run_uopc(*words, status=2).stderr.startswith("usage: uopc")


@pytest.mark.parametrize("opt", [0, 1, 2])
def test_compile_prints_what_would_be_compiled(
    run: Any, tmp_path: Path, opt: int
) -> None:
    with overriding(UOPC_OPT=opt):
        backend = CBackend()
        root = parse_uir(GRAPH)
        plan, _ = make_plan([root], None, backend.supports, backend.name)
        source = backend.compile(plan).source
    assert run("compile", GRAPH, "--opt", str(opt)) == (0, source, "")
    out = tmp_path / "out.c"
    assert run("compile", GRAPH, "--opt", str(opt), "-o", str(out)) == (0, "", "")
    assert out.read_text() == source
    with overriding(UOPC_OPT=opt):
        assert run("compile", GRAPH) == (0, source, "")


def test_compile_takes_every_root_of_a_sink(run: Any) -> None:
    code, out, _ = run("compile", GRAPH + "%21 = sink %20, %10, 2.5, x")
    assert code == 0
    assert out.endswith("  e(table[4]);\n}\n")
    assert out.count("table[") == 4 + 1
    _check_c(out)


def _check_c(text: str) -> None:
    flags = ["-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter"]
    done = subprocess.run(
        ["cc", "-x", "c", *flags, "-"], input=text, capture_output=True, text=True
    )
    assert done.returncode == 0, f"{done.stderr}\n{text}"


@pytest.mark.parametrize("seed", range(6))
def test_a_loop_program_of_a_dump_compiles_to_the_same_function(
    run: Any, seed: int
) -> None:
    graph = random_graph(seed, steps=8, max_elements=32)
    backend = CBackend()
    plan, _ = make_plan(graph.roots, None, backend.supports, backend.name)
    whole = backend.compile(plan).source
    for nest in nests_of(plan.kernels):
        lowered = lower_nest(nest, nest.name, current_target())
        if lowered is None:
            continue
        code, out, err = run("compile", to_uir(lowered.sink))
        assert (code, err) == (0, "")
        _check_c(out)
        function = out[out.index(f"void {nest.name}(") :]
        assert function.partition("(")[2] in whole


LOOPS = """\
%0 = range 0, 6 : dtype=i32
%1 = buffer 6 : dtype=f32 slot=1
%2 = buffer 6 : dtype=f32 slot=0
%3 = index %2, %0
%4 = mul %3, 2.0
%5 = store %1, %0, %4
%6 = end %0, %5
"""
NEST = LOOPS + "".join(
    f"%{k} = range {k}, 2 : dtype=i32\n%{k + 1} = end %{k}, %{k - 1}\n"
    for k in range(7, 400, 2)
)
DOUBLED = LOOPS + "".join(f"%{k} = end %0, %{k - 1}, %{k - 1}\n" for k in range(7, 70))
MANY = LOOPS + "".join(
    f"%{k} = add %{k - 1 if k > 7 else 4}, 1.0\n" for k in range(7, 3000)
)
LOCAL = """\
%0 = buffer 1 : dtype=f32 slot=5 space=local
%1 = store %0, 0, 1.0
"""
READ = """\
%2 = index %0, 0
%3 = buffer 1 : dtype=f32 slot=0
%4 = store %3, 0, %2
"""
COMPILE_ERRORS = {
    "param": ("%0 = param 3 : dtype=f32\n%1 = sqrt %0",
              "FILE: param 3 is not bound; put a buffer in its place"),
    "empty": ("%0 = sink x", "FILE: the sink is empty, so there is nothing to do"),
    "plan": (to_uir(plan_graph(make_plan([buf(0, 3).sqrt()])[0])), "FILE is a plan; "),
    "no sink": (LOOPS, "FILE: a loop program ends with a sink of statements"),
    "keyword": (LOOPS + "%7 = sink %6, while", "FILE: while is a word of C"),
    "main": (LOOPS + "%7 = sink %6, main", "FILE: main is a word of C"),
    "code": (LOOPS + "%7 = sink %6, x(){}//", "FILE: line 8, column 16: expected"),
    "shell": (LOOPS + "%7 = sink %6, `id`", "FILE: line 8, column 15: expected a node"),
    "quoted": (LOOPS + '%7 = sink %6, "a"', "FILE: line 8, column 15: expected a node"),
    "unicode": (LOOPS + "%7 = sink %6, é", "FILE: line 8, column 15: expected a node"),
    "slots": (LOOPS.replace("slot=1", "slot=0 version=1") + "%7 = sink %6, x",
              "FILE: two global buffers have slot 0"),
    "outside": (LOOPS + "%7 = sink %5, x", "FILE: range 0 is used outside of its loop"),
    "local not read": (LOCAL + "%2 = sink %1, x", "FILE: local buffer 5 is not both"),
    "local not written": (LOCAL + READ + "%5 = sink %4, x", "FILE: local buffer 5 is"),
    "local for itself": (LOCAL + "%2 = index %0, 0\n%3 = store %0, 0, %2\n"
                         "%4 = sink %1, %3, x", "FILE: local buffer 5 is not both"),
    "nest": (NEST + "%900 = sink %400, x", "FILE: too many statements, or loops"),
    "doubled": (DOUBLED + "%900 = sink %69, x", "FILE: too many statements, or loops"),
    "many": (MANY + "%5000 = store %1, 0, %2999\n%5001 = sink %5000, x",
             "FILE: a loop program of 300"),
    "no loop": (LOOPS + "%7 = end %5, %6\n%8 = sink %7, x", "FILE: end breaks"),
}  # fmt: skip


@pytest.mark.parametrize("name", COMPILE_ERRORS)
def test_compile_explains(run: Any, name: str) -> None:
    text, message = COMPILE_ERRORS[name]
    code, out, err = run("compile", text)
    assert (code, out) == (1, "")
    assert err.startswith(f"uopc: {message}")
    assert err.count("\n") == 1


def test_a_local_buffer_from_statement_to_statement(run: Any) -> None:
    code, out, _ = run("compile", LOCAL + READ + "%5 = sink %1, %4, x")
    assert code == 0
    _check_c(out)


def test_compile_allocates_nothing(run: Any) -> None:
    text = "%0 = iota 1\n%1 = expand %0, (1000000000000000000,)"
    code, out, _ = run("compile", text)
    assert code == 0
    assert "1000000000000000000" in out


def test_the_commands_as_a_pipe(
    run_command: Any, run_uopc: Any, tmp_path: Path
) -> None:
    """A file goes through show, grad and compile, and what comes out is right."""
    (tmp_path / "graph.uir").write_text(GRAPH)
    (tmp_path / "shown.uir").write_text(run_uopc("show", "graph.uir").stdout)
    run_uopc("grad", "shown.uir", "--wrt", "%0", "-o", "grad.uir")
    run_uopc("compile", "grad.uir", "-o", "grad.c")
    run_command("cc", "-shared", "-fPIC", "grad.c", "-o", "grad.so")
    program = (
        "import ctypes, numpy as np\n"
        "w, out = np.float32([1, 2, 3]), np.zeros(12, np.float32)\n"
        "table = (ctypes.c_void_p * 2)(w.ctypes.data, out.ctypes.data)\n"
        "ctypes.CDLL('./grad.so').uopc_run(table)\n"
        "print(*out)"
    )
    done = run_command("python", "-c", program)
    assert np.float32(done.stdout.split()).tolist() == [1, 2, 3] * 4


def test_a_plugin_that_is_blocked_takes_its_command_away(run_uopc: Any) -> None:
    done = run_uopc("grad", "x", "--wrt", "%0", status=1, UOPC_PLUGINS_BLOCK="autodiff")
    assert done.stderr == (
        "uopc: the command 'grad' comes with the blocked plugin 'autodiff'\n"
    )
