"""What third parties add, and how it fails: with pip, in the environment this runs in.

`nox -s plugins` runs it after installing uopc's wheels and hatchling. It installs the
two examples and runs their READMEs, then a distribution for each way to fail; what the
user sees is printed, and checked.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"
UOPC = Path(sys.executable).with_name("uopc")
PIP = [sys.executable, "-m", "pip"]
HEAD = """from uopc.plugins import hookimpl
from uopc.uop import OpDef, Ops, elementwise

NEW = OpDef("{name}", "elementwise", 1, elementwise(("float",)), "A sine.",
            numpy=Ops.SIN.numpy)
"""
BODY = """
@hookimpl
def uopc_register_ops(register):
    register(NEW)
"""
# Name -> the module, the phase that fails, what the error says.
FAILING = {
    "importing": ("import no_such_module", "import", "No module named 'no_such_modu"),
    "misnaming": (BODY.replace("register)", "registry)"), "validate", "registry"),
    "duplicating": (
        BODY + "    register(OpDef('add', 'elementwise', 1, NEW.infer, 'Mine.'))\n",
        "uopc_register_ops",
        "op 'add' is registered by plugin 'core' and by plugin 'duplicating'",
    ),
    "raising": (
        BODY + "\n@hookimpl\ndef uopc_register_vjps(register):\n    1 // 0\n",
        "uopc_register_vjps",
        "ZeroDivisionError",
    ),
}
PROJECT = """[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "uopc-{name}"
version = "1.2"
[project.entry-points."uopc.plugins"]
{name} = "uopc_{name}"
"""
# Uses everything else, then the op that the failed plugin would have added.
PROGRAM = """
import sys
from uopc.tensor import Tensor
from uopc.uir import parse_uir
w = Tensor([1.0, 2.0], requires_grad=True)
(w * w).sum().backward([w])
print(w.grad.tolist())
parse_uir("%0 = buffer 3 : dtype=f32 slot=0\\n%1 = " + sys.argv[1] + " %0")
"""


def run(*words: object, status: int = 0, **variables: str) -> tuple[str, str]:
    """Run a command; its output, or an AssertionError with all of it."""
    done = subprocess.run(
        [str(word) for word in words],
        capture_output=True,
        text=True,
        env={**os.environ, **variables},
        check=False,
    )
    said = f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert done.returncode == status, said
    return done.stdout, done.stderr


def install(folder: Path) -> None:
    """Build the distribution in a folder and install it, with what is here."""
    run(*PIP, "install", "--no-build-isolation", "--no-deps", "-q", folder)


def training(readme: Path) -> tuple[str, str]:
    """The first program of a README, and what the README says that it prints."""
    blocks = re.findall(r"```(\w+)\n(.*?)```", readme.read_text(), re.S)
    assert [kind for kind, _ in blocks[:2]] == ["python", "text"]
    return blocks[0][1], blocks[1][1]


def losses(text: str) -> list[float]:
    """The numbers after the word loss."""
    return [float(number) for number in re.findall(r"loss (\S+)", text)]


def train(name: str) -> None:
    """Install an example and run what its README shows."""
    install(EXAMPLES / f"plugin_{name}")
    program, shown = training(EXAMPLES / f"plugin_{name}/README.md")
    printed, warned = run(sys.executable, "-c", program)
    print(f"uopc-{name}:\n{printed}")
    assert (printed, warned) == (shown, "")
    assert losses(printed)[-1] < losses(printed)[0] / 4


def stays_without_it() -> None:
    """Without the overriding rule nothing is learned."""
    program, _ = training(EXAMPLES / "plugin_ste/README.md")
    printed, _ = run(sys.executable, "-c", program, UOPC_PLUGINS_BLOCK="ste")
    print(f"uopc-ste blocked:\n{printed}")
    assert len(set(losses(printed))) == 1


def fail(name: str, folder: Path) -> None:
    """Install one that fails: it is listed, warned of once, quoted; the rest works."""
    text, phase, error = FAILING[name]
    (folder / f"uopc_{name}").mkdir(parents=True)
    head = "" if name == "importing" else HEAD.replace("{name}", name)
    (folder / f"uopc_{name}/__init__.py").write_text(head + text)
    (folder / "pyproject.toml").write_text(PROJECT.replace("{name}", name))
    install(folder)
    said = f"plugin '{name}' (uopc-{name} 1.2) failed in {phase}: "
    listed, _ = run(UOPC, "plugins", status=1)
    table, _, failures = listed.partition("\n\n")
    assert failures.startswith(said) and error in failures, listed
    status = {row.split()[0]: row.split()[-1] for row in table.splitlines()[1:]}
    assert status.pop(name) == "failed" and set(status.values()) == {"loaded"}, listed
    printed, warned = run(sys.executable, "-c", PROGRAM, name, status=1)
    assert printed == "[2.0, 4.0]\n", printed
    assert warned.count(f"PluginWarning: {said}") == 1, warned
    last = warned.rstrip().rpartition("\n")[2]
    assert f"got '{name}'; note: {said}" in last, warned
    print(f"{failures}  and later: {last}\n")
    run(*PIP, "uninstall", "-q", "-y", f"uopc-{name}")


def main() -> None:
    """All of it."""
    for name in ("erf", "ste"):
        train(name)
    stays_without_it()
    with tempfile.TemporaryDirectory() as folder:
        for name in FAILING:
            fail(name, Path(folder, name))
    listed, _ = run(UOPC, "plugins")
    print(listed)


if __name__ == "__main__":
    main()
