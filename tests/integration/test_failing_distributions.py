"""Installed plugins that fail, each in its way: reported, and nothing else breaks."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

HEAD = """
from uopc.plugins import hookimpl
from uopc.uop import OpDef, Ops
"""
OP = "OpDef('{0}', 'elementwise', 1, Ops.SIN.infer, 'An op.', numpy=Ops.SIN.numpy)"
# Name -> the module's text, the phase in which it fails, the error.
WAYS = {
    "importing": (
        "import a_module_that_is_not_there",
        "import",
        "ModuleNotFoundError: No module named 'a_module_that_is_not_there'",
    ),
    "misnaming": (
        f"""{HEAD}
@hookimpl
def uopc_register_ops(registry):
    registry({OP.format("misnamed")})
""",
        "validate",
        "PluginValidationError: ",
    ),
    "duplicating": (
        f"""{HEAD}
@hookimpl
def uopc_register_ops(register):
    register({OP.format("fresh")})
    register({OP.format("add")})
""",
        "uopc_register_ops",
        "DuplicateError: op 'add' is registered by plugin 'core' and by plugin "
        "'duplicating'; pass override=True to replace it",
    ),
    "raising": (
        f"""{HEAD}
NEW = {OP.format("new")}

@hookimpl
def uopc_register_ops(register):
    register(NEW)

@hookimpl
def uopc_register_backends(register):
    register("interp2", object)

@hookimpl
def uopc_register_spellings(register):
    register("c", NEW, "x")
    raise LookupError("no table of\\ncoefficients")
""",
        "uopc_register_spellings",
        "LookupError: no table of coefficients",
    ),
}
HEALTHY = f"""{HEAD}
TWICE = {OP.format("twice")}

@hookimpl
def uopc_register_ops(register):
    register(TWICE)
"""
PROGRAM = """
from uopc.plugins import registry
from uopc.tensor import Tensor

w = Tensor([1.0, 2.0], requires_grad=True)
(w * w).sum().backward([w])
print(w.grad.tolist())
reg = registry()
print(*(name for name in ("fresh", "misnamed", "new", "twice") if name in reg.ops))
print(*sorted(reg.backends), *sorted(set(reg.owners.values())))
"""


def install(site: Path, name: str, text: str) -> None:
    """What pip would leave of a distribution with one module and one plugin."""
    (site / f"uopc_{name}.py").write_text(text)
    info = site / f"uopc_{name}-1.2.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: uopc-{name}\nVersion: 1.2\n"
    )
    point = f"[uopc.plugins]\n{name} = uopc_{name}\n"
    (info / "entry_points.txt").write_text(point)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder with a healthy distribution, to which others are added."""
    folder = tmp_path / "site"
    folder.mkdir()
    install(folder, "zealous", HEALTHY)
    return folder


def listing(text: str) -> tuple[dict[str, list[str]], list[str]]:
    """`uopc plugins`: the cells by name, and the failures below."""
    table, _, failures = text.partition("\n\n")
    rows = [re.split("  +", line) for line in table.splitlines()[1:]]
    return {row[0]: row[1:] for row in rows}, failures.splitlines()


@pytest.mark.parametrize("name", WAYS)
def test_each_way_to_fail_is_listed(run_uopc: Any, site: Path, name: str) -> None:
    text, phase, error = WAYS[name]
    install(site, name, text)
    done = run_uopc("plugins", status=1, PYTHONPATH=str(site))
    rows, [failure] = listing(done.stdout)
    assert failure.startswith(
        f"plugin '{name}' (uopc-{name} 1.2) failed in {phase}: {error}"
    )
    distribution, version, _, registered, status = rows.pop(name)
    assert (distribution, version) == (f"uopc-{name}", "1.2")
    assert (registered, status) == ("-", "failed")
    assert {key: row[-1] for key, row in rows.items()} == {
        "core": "loaded",
        "autodiff": "loaded",
        "c": "loaded",
        "zealous": "loaded",
    }
    assert done.stderr == ""


def test_a_bad_signature_says_which_argument(run_uopc: Any, site: Path) -> None:
    install(site, "misnaming", WAYS["misnaming"][0])
    done = run_uopc("plugins", status=1, PYTHONPATH=str(site))
    _, [failure] = listing(done.stdout)
    assert "uopc_register_ops" in failure
    assert "registry" in failure


@pytest.fixture
def every_way(site: Path) -> Path:
    """All of them at once."""
    for name, (text, _, _) in WAYS.items():
        install(site, name, text)
    return site


def test_all_at_once_leave_the_rest_alone(run_python: Any, every_way: Path) -> None:
    done = run_python(PROGRAM, PYTHONPATH=str(every_way))
    assert done.stdout.splitlines() == [
        "[2.0, 4.0]",
        "twice",
        "c interp autodiff c core zealous",
    ]
    for name, (_, phase, _) in WAYS.items():
        said = f"PluginWarning: plugin '{name}' (uopc-{name} 1.2) failed in {phase}: "
        assert done.stderr.count(said) == 1
    assert done.stderr.count("PluginWarning: ") == len(WAYS)


def test_doctor_names_each(run_uopc: Any, every_way: Path) -> None:
    done = run_uopc("doctor", status=1, PYTHONPATH=str(every_way))
    problems = [x for x in done.stdout.splitlines() if x.startswith("problem: ")]
    assert len(problems) == len(WAYS)
    for name, (_, phase, _) in WAYS.items():
        said = f"problem: plugin '{name}' (uopc-{name} 1.2) failed in {phase}: "
        assert any(problem.startswith(said) for problem in problems)
        assert f"uopc-{name}" in done.stdout.partition("\n\n")[0]
    assert "active backend" in done.stdout


def test_strict_loading_raises_and_names_each(run_python: Any, every_way: Path) -> None:
    variables = {"PYTHONPATH": str(every_way), "UOPC_PLUGINS_STRICT": "1"}
    done = run_python(PROGRAM, status=1, **variables)
    last = done.stderr.rstrip("\n").rpartition("\n")[2]
    assert last.startswith("uopc.plugins.failures.PluginError: ")
    assert last.count("; plugin '") == len(WAYS) - 1
    assert done.stdout == ""


def test_blocking_them_is_a_cure(run_python: Any, every_way: Path) -> None:
    variables = {"PYTHONPATH": str(every_way), "UOPC_PLUGINS_BLOCK": ",".join(WAYS)}
    done = run_python(PROGRAM, UOPC_PLUGINS_STRICT="1", **variables)
    assert done.stdout.startswith("[2.0, 4.0]\ntwice\n")
    assert done.stderr == ""


def test_importing_uopc_is_never_in_danger(run_python: Any, every_way: Path) -> None:
    program = "import uopc.tensor, uopc.uir, uopc.autodiff, uopc.backend_c, uopc.nn"
    variables = {"PYTHONPATH": str(every_way), "UOPC_PLUGINS_STRICT": "1"}
    assert run_python(program, **variables).stderr == ""
