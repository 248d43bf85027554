"""examples/plugin_erf as a third party ships it: built, installed, trained through.

It is installed into a folder of its own, which only the processes started here have
on their path.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples/plugin_erf"
README = (EXAMPLE / "README.md").read_text()
BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.S)


@pytest.fixture(scope="session")
def erf_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built by the backend that pyproject.toml names, without an index."""
    copy = tmp_path_factory.mktemp("erf") / "source"
    shutil.copytree(EXAMPLE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel"]
    subprocess.run(command, cwd=copy, check=True, capture_output=True)
    (wheel,) = copy.glob("dist/*.whl")
    return wheel


@pytest.fixture(scope="session")
def erf_site(erf_wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which the wheel is installed."""
    site = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "pip", "install", "--no-index", "--no-deps"]
    command += ["--no-compile", "--target", str(site), str(erf_wheel)]
    subprocess.run(command, check=True, capture_output=True)
    return site


def test_the_wheel_has_what_a_plugin_needs(erf_wheel: Path) -> None:
    with zipfile.ZipFile(erf_wheel) as archive:
        text = {name: archive.read(name).decode() for name in archive.namelist()}
    info = next(name for name in text if name.endswith("METADATA")).split("/")[0]
    assert {name for name in text if not name.startswith(info)} == {
        "uopc_erf/__init__.py",
        "uopc_erf/py.typed",
    }
    points = text[f"{info}/entry_points.txt"].split()
    assert points == ["[uopc.plugins]", "erf", "=", "uopc_erf"]
    assert text[f"{info}/licenses/LICENSE"] == (ROOT / "LICENSE").read_text()
    needs = re.findall(r"^Requires-Dist: ([\w-]+)", text[f"{info}/METADATA"], re.M)
    assert sorted(needs) == ["numpy", "uopc-core"]


def test_it_is_listed_once_installed(run_uopc: Any, erf_site: Path) -> None:
    lines = run_uopc("plugins", PYTHONPATH=str(erf_site)).stdout.splitlines()
    rows = [re.split("  +", line) for line in lines[1:]]
    file = str(erf_site / "uopc_erf/__init__.py")
    counts = "ops 1, vjps 1, spellings 1"
    assert rows[-1] == ["erf", "uopc-erf", "0.2.0", file, counts, "loaded"]
    assert [row[0] for row in rows] == ["core", "autodiff", "c", "erf"]
    assert counts in README
    assert "erf" not in run_uopc("plugins").stdout


@pytest.mark.parametrize("backend", ["c", "interp"])
def test_the_readme_prints_what_it_shows(
    run_python: Any, erf_site: Path, backend: str
) -> None:
    blocks = BLOCK.findall(README)
    program = "print('-----')\n".join(code for kind, code in blocks if kind == "python")
    shown = [text for kind, text in blocks if kind != "python"]
    assert len(shown) == 3
    done = run_python(program, PYTHONPATH=str(erf_site), UOPC_BACKEND=backend)
    printed = done.stdout.split("-----\n")
    assert [p.rstrip("\n") for p in printed] == [s.rstrip("\n") for s in shown]
    assert done.stderr == ""


VALUES = """
import math
import numpy as np
from uopc.tensor import Tensor
from uopc_erf import erf

for dtype, ulp in ((np.float32, 2), (np.float64, 4)):
    points = np.linspace(-4, 4, 201).astype(dtype)
    exact = np.array([math.erf(v) for v in points.tolist()])
    got = erf(Tensor(points)).numpy()
    assert got.dtype == dtype
    assert (abs(got - exact) <= ulp * np.spacing(abs(exact.astype(dtype)))).all()

    # The slope, and the slope's slope: -2x times it.
    x = Tensor(points, requires_grad=True)
    y = erf(x)
    y.numpy()  # having been looked at does not cut it off
    y.sum().backward([x])
    first, x.grad = x.grad, None
    first.sum().backward([x])
    slope = 2 / np.sqrt(np.pi) * np.exp(-points.astype(float) ** 2)
    assert np.allclose(first.numpy(), slope, rtol=1e-5)
    assert np.allclose(x.grad.numpy(), -2 * points * slope, rtol=1e-4, atol=1e-12)

print(erf(Tensor(np.zeros((2, 0, 3), np.float32))).shape, erf(Tensor(0.0)).item())
try:
    erf(Tensor([1, 2]))
except TypeError as error:
    print(error)
"""


@pytest.mark.parametrize("opt", ["0", "1"])
@pytest.mark.parametrize("backend", ["c", "interp"])
def test_values_and_derivatives(
    run_python: Any, erf_site: Path, backend: str, opt: str
) -> None:
    variables = {"UOPC_BACKEND": backend, "UOPC_OPT": opt, "UOPC_CHECK": "2"}
    done = run_python(VALUES, PYTHONPATH=str(erf_site), **variables)
    shape, error = done.stdout.splitlines()
    assert shape == "(2, 0, 3) 0.0"
    assert error.startswith("erf(i32[2]): expected a dtype of kind float")


TEXT = """
from uopc.testing import buf
from uopc.uir import parse_uir, to_uir
from uopc.uop import UOp

text = "%0 = buffer 3 : dtype=f32 slot=0\\n%1 = erf %0\\n%2 = mul %1, %0"
graph = parse_uir(text)
assert to_uir(graph) == text
from uopc_erf import ERF
assert graph is UOp(ERF, (buf(0, 3),)) * buf(0, 3)
print(graph.op, graph.src[0].op)
"""


def test_the_text_form_knows_the_op(run_python: Any, erf_site: Path) -> None:
    """From the moment on that it is installed: nothing has imported it before."""
    done = run_python(TEXT, PYTHONPATH=str(erf_site))
    assert done.stdout == "Ops.MUL Ops.ERF\n"
    blocked = {"PYTHONPATH": str(erf_site), "UOPC_PLUGINS_BLOCK": "erf"}
    done = run_python(TEXT, status=1, **blocked)
    assert "line 2, column 6: expected the name of an op, got 'erf'\n" in done.stderr


def test_it_needs_no_c_backend(run_python: Any, erf_site: Path) -> None:
    program = """
        import sys
        from uopc.tensor import Tensor
        from uopc_erf import erf

        w = Tensor([0.5, -1.0], requires_grad=True)
        erf(w).sum().backward([w])
        print([round(g, 4) for g in w.grad.tolist()])
        print([name for name in sys.modules if name.startswith("uopc.backend_c")])
    """
    blocked = {"PYTHONPATH": str(erf_site), "UOPC_PLUGINS_BLOCK": "c"}
    assert run_python(program, **blocked).stdout == "[0.8788, 0.4151]\n[]\n"


def test_it_needs_no_gradient_engine(run_python: Any, erf_site: Path) -> None:
    program = """
        from uopc.tensor import Tensor
        from uopc_erf import erf

        x = Tensor([0.5, -1.0], requires_grad=True)
        print([round(y, 4) for y in erf(x).tolist()])
        erf(x).sum().backward([x])
    """
    blocked = {"PYTHONPATH": str(erf_site), "UOPC_PLUGINS_BLOCK": "autodiff"}
    done = run_python(program, status=1, **blocked)
    assert done.stdout == "[0.5205, -0.8427]\n"
    assert done.stderr.endswith("pip install uopc-autodiff\n")


@pytest.fixture
def broken_site(erf_site: Path, tmp_path: Path) -> Path:
    """The same distribution with a fault in one of its hooks."""
    site = tmp_path / "broken"
    shutil.copytree(erf_site, site)
    with (site / "uopc_erf/__init__.py").open("a") as file:
        file.write(
            "\n\n@hookimpl\n"
            "def uopc_register_rewrites(register):\n"
            "    raise LookupError('no table')\n"
        )
    return site


USES = {
    "parse": "parse_uir('%0 = buffer 3 : dtype=f32 slot=0\\n%1 = erf %0')",
    "compile": "erf(x).numpy()",
    "gradient": "erf(x).sum().backward([x])",
}


@pytest.mark.parametrize("use", USES)
def test_later_errors_quote_what_failed(
    run_python: Any, broken_site: Path, use: str
) -> None:
    program = f"""
        from uopc.tensor import Tensor
        from uopc.uir import parse_uir
        from uopc_erf import erf

        x = Tensor([1.0, 2.0], requires_grad=True)
        print((x + 1).tolist())
        {USES[use]}
    """
    variables = {"PYTHONPATH": str(broken_site), "UOPC_BACKEND": "c"}
    done = run_python(program, status=1, **variables)
    note = "plugin 'erf' (uopc-erf 0.2.0) failed in uopc_register_rewrites: LookupError"
    assert done.stdout == "[2.0, 3.0]\n"
    assert f"; note: {note}: no table\n" in done.stderr
    assert done.stderr.count(f"PluginWarning: {note}") == 1
