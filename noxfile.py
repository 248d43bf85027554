"""The project's checks: `nox` runs them all, `nox -s NAME` one, `nox -l` lists them.

Every test session has an environment of its own with the wheels of the
distributions that it names, what those declare, and pytest: nothing else. A missing
dependency or a file that did not get into a wheel therefore fails here first.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import nox

nox.needs_version = ">=2025.2.9"
nox.options.reuse_venv = "no"
nox.options.error_on_missing_interpreters = True
# integration is last, so that a run ends with its summary.
nox.options.sessions = [
    "lint",
    "types",
    "core",
    "autodiff",
    "backend_c",
    "nn",
    "integration",
]

ROOT = Path(__file__).parent
DISTRIBUTIONS = ("uopc-core", "uopc-autodiff", "uopc-backend-c", "uopc-nn")


def dist_folder(session: nox.Session) -> Path:
    """The folder that holds this run's wheels and sdists."""
    return Path(session.cache_dir).resolve() / "dist"


def copy_package(source: Path, target: Path) -> None:
    """Copy what belongs to a distribution, without what tools left beside it."""
    ignore = shutil.ignore_patterns("__pycache__", "*.pyc")
    shutil.copytree(source / "src", target / "src", ignore=ignore)
    for file in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(source / file, target)


def wheel(session: nox.Session, distribution: str) -> str:
    """The path of a built wheel: a path, so that no index can answer instead."""
    stem = distribution.replace("-", "_")
    (found,) = dist_folder(session).glob(f"{stem}-*.whl")
    return str(found)


def install(session: nox.Session, *requirements: str) -> None:
    """Install without compiling bytecode, which takes longer than the rest of it."""
    session.install("--no-compile", *requirements)
    # The first import writes the bytecode then, also where the caller's shell forbids
    # it: tests start many interpreters.
    session.env["PYTHONDONTWRITEBYTECODE"] = None


def run_tests(
    session: nox.Session,
    distributions: Sequence[str],
    paths: Sequence[str],
    tools: Sequence[str] = ("pytest",),
) -> None:
    """Run pytest on `paths` with the wheels of `distributions` and nothing more."""
    install(session, *(wheel(session, name) for name in distributions), *tools)
    session.run("python", "-m", "pip", "check", silent=True)
    cache = Path(session.virtualenv.location).resolve() / "cache"
    cache.mkdir(mode=0o700, exist_ok=True)
    session.env["XDG_CACHE_HOME"] = str(cache)
    session.env["WHEELHOUSE"] = str(dist_folder(session))
    # Options alone, such as `-k dtype`, are for the tests of this session.
    named = any(Path(a.partition("::")[0]).exists() for a in session.posargs)
    session.run("python", "-m", "pytest", *([] if named else paths), *session.posargs)


@nox.session
def build(session: nox.Session) -> None:
    """Build the wheels and sdists that the other sessions install."""
    session.install("--no-compile", "hatchling>=1.27")
    dist = dist_folder(session)
    shutil.rmtree(dist, ignore_errors=True)
    for name in DISTRIBUTIONS:
        with tempfile.TemporaryDirectory() as temporary:
            copy = Path(temporary) / name
            copy_package(ROOT / "packages" / name, copy)
            with session.chdir(copy):
                command = ("python", "-m", "hatchling", "build", "-d", str(dist))
                session.run(*command, silent=True)


@nox.session
def lint(session: nox.Session) -> None:
    """Check format and style with ruff."""
    session.install("--no-compile", "ruff")
    session.run("ruff", "format", "--check", ".")
    session.run("ruff", "check", ".")


@nox.session
def types(session: nox.Session) -> None:
    """Check the types of all packages and examples with mypy, strictly."""
    tools = ("mypy", "numpy", "pluggy", "hypothesis", "types-tqdm")
    session.install("--no-compile", *tools)
    session.run("mypy", *session.posargs)


@nox.session(requires=["build"])
def core(session: nox.Session) -> None:
    """Test uopc-core by itself."""
    tools = ["pytest", "hypothesis>=6.131"]
    run_tests(session, ["uopc-core"], ["tests/core", "tests/plugins"], tools)


@nox.session(requires=["build"])
def autodiff(session: nox.Session) -> None:
    """Test uopc-autodiff with the reference backend."""
    run_tests(session, ["uopc-core", "uopc-autodiff"], ["tests/autodiff"])


@nox.session(requires=["build"])
def backend_c(session: nox.Session) -> None:
    """Test uopc-backend-c without gradients."""
    run_tests(session, ["uopc-core", "uopc-backend-c"], ["tests/backend_c"])


@nox.session(requires=["build"])
def nn(session: nox.Session) -> None:
    """Test uopc-nn with the reference backend."""
    run_tests(session, ["uopc-core", "uopc-autodiff", "uopc-nn"], ["tests/nn"])


@nox.session(requires=["build"])
def integration(session: nox.Session) -> None:
    """Test all four distributions together, the documents and the wheels."""
    paths = [
        f"tests/{name}" for name in ("integration", "meta", "golden", "cases", "fuzz")
    ]
    # hatchling builds the example of a third party's plugin; hypothesis shrinks graphs.
    tools = ["pytest", "hatchling>=1.27", "hypothesis>=6.131"]
    run_tests(session, DISTRIBUTIONS, paths, tools)


@nox.session(requires=["build"])
def fuzz(session: nox.Session) -> None:
    """Prove the rewrite rules with z3 and by trying all 8-bit values: minutes."""
    tools = ["pytest", "hypothesis", "z3-solver"]
    run_tests(session, DISTRIBUTIONS, ["tests/proofs"], tools)


@nox.session(requires=["build"])
def demo(session: nox.Session) -> None:
    """Train on the handwritten digits, from built wheels, in a fresh environment."""
    wheels = [wheel(session, name) for name in DISTRIBUTIONS[:-1]]
    plot = f"{wheel(session, 'uopc-nn')}[plot]"
    install(session, *wheels, plot, "scikit-learn")
    session.run("python", "examples/digits.py", *session.posargs)
