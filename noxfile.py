"""The project's checks: `nox` runs them all, `nox -s NAME` one, `nox -l` lists them.

Every test session has an environment of its own with the wheels of the
distributions that it names, what those declare, and pytest: nothing else. A missing
dependency or a file that did not get into a wheel therefore fails here first.

pytest runs on all processors; `-- -n0` after a session's name keeps it to one process,
which a debugger needs.
"""

from __future__ import annotations

import os
import platform
import shlex
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
    "plugins",
    "integration",
]

ROOT = Path(__file__).parent
DISTRIBUTIONS = ("uopc-core", "uopc-autodiff", "uopc-backend-c", "uopc-nn")
HATCHLING, HYPOTHESIS = "hatchling>=1.27", "hypothesis>=6.131"


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
    *tools: str,
    processes: str = "auto",
) -> None:
    """Run pytest on `paths` with the wheels of `distributions` and nothing more."""
    wheels = [wheel(session, name) for name in distributions]
    install(session, *wheels, "pytest", "pytest-xdist", *tools)
    session.run("python", "-m", "pip", "check", silent=True)
    cache = Path(session.virtualenv.location).resolve() / "cache"
    cache.mkdir(mode=0o700, exist_ok=True)
    session.env["XDG_CACHE_HOME"] = str(cache)
    session.env["WHEELHOUSE"] = str(dist_folder(session))
    # There is a worker per processor: threads of BLAS would only be in their way.
    session.env["OPENBLAS_NUM_THREADS"] = "1"
    # Options alone, such as `-k dtype`, are for the tests of this session.
    named = any(Path(a.partition("::")[0]).exists() for a in session.posargs)
    # Neighbours stay together as long as nobody is idle, so that a module's fixtures
    # are mostly made once.
    words = ["-n", processes, "--dist", "worksteal", *([] if named else paths)]
    session.run("python", "-m", "pytest", *words, *session.posargs)


@nox.session
def build(session: nox.Session) -> None:
    """Build the wheels and sdists that the other sessions install."""
    session.install("--no-compile", HATCHLING)
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
    paths = ["tests/core", "tests/plugins"]
    run_tests(session, ["uopc-core"], paths, HYPOTHESIS)


@nox.session(requires=["build"])
def autodiff(session: nox.Session) -> None:
    """Test uopc-autodiff with the reference backend."""
    run_tests(session, ["uopc-core", "uopc-autodiff"], ["tests/autodiff"])


@nox.session(requires=["build"])
def backend_c(session: nox.Session) -> None:
    """Test uopc-backend-c without gradients."""
    run_tests(session, ["uopc-core", "uopc-backend-c"], ["tests/backend_c"])


def has_clang(session: nox.Session) -> bool:
    """Whether there is clang, after trying to install it."""
    if shutil.which("clang") is None:
        if os.geteuid() or shutil.which("apt-get") is None:
            return False
        words = ("apt-get", "install", "-y", "--no-install-recommends", "clang")
        session.run(*words, external=True)
    return True


@nox.session(requires=["build"])
def clang(session: nox.Session) -> None:
    """Test uopc-backend-c with clang, and with the compiler of the ziglang wheel."""
    if not has_clang(session):
        session.skip("NOT TESTED: there is no clang, and installing it takes root")
    session.env["UOPC_CC"] = "clang"
    run_tests(session, ["uopc-core", "uopc-backend-c"], ["tests/backend_c"])
    if not session.posargs:
        # Its warnings, and the same values as the reference's, bit by bit.
        paths = ["tests/golden", "tests/fuzz", "tests/integration/test_chapter.py"]
        paths += ["--fuzz", "0:200"]
        run_tests(session, DISTRIBUTIONS, paths, HYPOTHESIS)
    session.install(f"{wheel(session, 'uopc-backend-c')}[zig]")
    python = Path(session.virtualenv.location).resolve() / "bin" / "python"
    session.env["UOPC_CC"] = f"{shlex.quote(str(python))} -m ziglang cc"
    # It takes a second or so for each program: what is tested is the compiler.
    session.run("python", "-m", "pytest", "tests/backend_c/test_program.py", "-q")


# Compiler, -march and UOPC_OPT: each compiler with each target, each of both with
# schedules and without, and each level. "native" is what is compiled for unasked.
TARGETS = (
    ("gcc", "x86-64-v4", 1),
    ("gcc", "x86-64-v3", 1),
    ("gcc", "x86-64", 1),
    ("gcc", "x86-64-v3", 0),
    ("gcc", "native", 2),
    ("clang", "x86-64-v4", 2),
    ("clang", "x86-64-v3", 1),
    ("clang", "x86-64", 1),
    ("clang", "x86-64", 0),
    ("clang", "native", 1),
)
# What computes. The other tests of the backend are about the cache, the processes, the
# pool, finding the compiler, and its command: they set UOPC_CC themselves.
TARGET_TESTS = (
    *(
        f"tests/backend_c/test_{name}.py"
        for name in (
            *("contractions", "gather", "guarded_loops", "in_place_c", "joined_c"),
            *("ops_in_c", "parallel_printer", "program", "reductions", "scatter"),
            *("tile_printer", "vector_math", "vector_ops", "vector_printer"),
        )
    ),
    *("tests/cases/test_cases.py::test_program", "tests/fuzz/test_programs.py"),
    *("tests/nn", "tests/targets"),
    *(
        f"tests/integration/test_{name}.py"
        for name in (
            *("axis_functions_in_c", "convolution_gradients", "gather_training"),
            *("in_place_training", "lowered_kinds_in_c", "setitem_gradients"),
        )
    ),
)


def runs_here(march: str) -> bool:
    """Whether this processor has what AVX-512 or AVX2 code needs."""
    needed = {"x86-64-v4": "avx512vl", "x86-64-v3": "avx2"}.get(march)
    described = Path("/proc/cpuinfo")
    features = described.read_text().split() if described.exists() else []
    return needed is None or needed in features


@nox.session(requires=["build"])
def targets(session: nox.Session) -> None:
    """Test values of AVX-512, AVX2 and SSE2 code of gcc and clang: an hour or so.

    `-- "clang x86-64-v3 1"` takes one combination; further words go to pytest.
    """
    if platform.machine() != "x86_64":
        session.skip("NOT TESTED: the targets are those of x86-64")
    wheels = [wheel(session, name) for name in DISTRIBUTIONS]
    install(session, *wheels, "pytest", "pytest-xdist", HYPOTHESIS)
    session.env["OPENBLAS_NUM_THREADS"] = "1"
    wanted = [" ".join(map(str, t)) for t in TARGETS]
    asked = [a for a in session.posargs if a in wanted]
    words = [a for a in session.posargs if a not in wanted]
    clang_found, left_out = has_clang(session), []
    for compiler, march, opt in TARGETS:
        label = f"{compiler} {march} {opt}"
        if asked and label not in asked:
            continue
        if shutil.which(compiler) is None or (compiler == "clang" and not clang_found):
            left_out.append(f"{label}: there is no {compiler}")
            continue
        session.log(f"target: {label}")
        # Every program, so that a warning of any is an error.
        command = f"{compiler} -march={march} -Wall -Wextra -Werror"
        env = {"UOPC_CC": command, "UOPC_OPT": str(opt)}
        cache = Path(session.virtualenv.location).resolve() / label.replace(" ", "-")
        cache.mkdir(mode=0o700, exist_ok=True)
        env["XDG_CACHE_HOME"] = str(cache)
        paths = list(TARGET_TESTS)
        if not runs_here(march):
            left_out.append(f"{label}: compiled only, this processor has no {march}")
            paths = ["tests/targets"]
        run = ("python", "-m", "pytest", "-q", "-n", "auto", "--dist", "worksteal")
        session.run(*run, *paths, "--fuzz", "0:300", *words, env=env)
    for line in left_out:
        session.warn(f"NOT TESTED: {line}")


@nox.session(requires=["build"])
def sanitize(session: nox.Session) -> None:
    """Run the pool of threads under the thread sanitizer of gcc."""
    if shutil.which("gcc") is None:
        session.skip("NOT TESTED: there is no gcc")
    run_tests(session, ["uopc-core", "uopc-backend-c"], ["tests/sanitize"])


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
    run_tests(session, DISTRIBUTIONS, paths, HATCHLING, HYPOTHESIS)


@nox.session(requires=["build"])
def plugins(session: nox.Session) -> None:
    """Install the examples of plugins, and some that fail, as a user would."""
    install(session, *(wheel(session, name) for name in DISTRIBUTIONS), HATCHLING)
    cache = Path(session.virtualenv.location).resolve() / "cache"
    cache.mkdir(mode=0o700, exist_ok=True)
    session.env["XDG_CACHE_HOME"] = str(cache)
    session.run("python", "tests/third_parties/walk.py")


@nox.session(requires=["build"])
def fuzz(session: nox.Session) -> None:
    """Prove the rewrite rules with z3 and by trying all 8-bit values: minutes."""
    # In one process: the last test counts what the others have proved.
    tools = [HYPOTHESIS, "z3-solver"]
    run_tests(session, DISTRIBUTIONS, ["tests/proofs"], *tools, processes="0")


@nox.session(requires=["build"])
def oracle(session: nox.Session) -> None:
    """Compare gradients with JAX's, of random graphs and of functions: minutes."""
    # The tests of the random graphs start processes of their own.
    run_tests(session, DISTRIBUTIONS, ["tests/oracle"], "jax>=0.4.36", processes="0")


@nox.session(requires=["build"])
def demo(session: nox.Session) -> None:
    """Train on the handwritten digits, from built wheels, in a fresh environment."""
    wheels = [wheel(session, name) for name in DISTRIBUTIONS[:-1]]
    plot = f"{wheel(session, 'uopc-nn')}[plot]"
    install(session, *wheels, plot, "scikit-learn")
    session.run("python", "examples/digits.py", *session.posargs)


@nox.session(requires=["build"])
def bench(session: nox.Session) -> None:
    """Time uopc beside NumPy, and with `-- --peers` beside PyTorch and JAX: minutes."""
    install(session, *(wheel(session, name) for name in DISTRIBUTIONS))
    if "--peers" in session.posargs:
        # Elsewhere PyTorch brings gigabytes for graphics cards.
        index = ("--extra-index-url", "https://download.pytorch.org/whl/cpu")
        install(session, *index, "torch==2.13.0", "jax==0.10.2", "jaxlib==0.10.2")
    session.run("python", "benchmarks/bench.py", *session.posargs)
