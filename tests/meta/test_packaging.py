"""What is in the wheels and sdists, and what their metadata says."""

import ast
import importlib.metadata
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
VERSION = tomllib.loads((ROOT / "packages/uopc-core/pyproject.toml").read_text())[
    "project"
]["version"]

# What each distribution declares: siblings are pinned, the others have a lower bound.
SIBLINGS = {
    "uopc-core": set(),
    "uopc-autodiff": {"uopc-core"},
    "uopc-backend-c": {"uopc-core"},
    "uopc-nn": {"uopc-core", "uopc-autodiff"},
}
OTHERS = {
    "uopc-core": {"numpy", "pluggy"},
    "uopc-autodiff": set(),
    "uopc-backend-c": {"numpy"},
    "uopc-nn": {"numpy", "tqdm"},
}
EXTRAS = {
    "uopc-core": {"testing": {"hypothesis"}},
    "uopc-backend-c": {"progress": {"tqdm"}, "zig": {"ziglang"}},
    "uopc-nn": {"plot": {"matplotlib"}},
}
PLUGINS = {
    "uopc-core": {"core": "uopc.plugins.builtin"},
    "uopc-autodiff": {"autodiff": "uopc.autodiff.plugin"},
    "uopc-backend-c": {"c": "uopc.backend_c.plugin"},
    "uopc-nn": {},
}
PACKAGES = {
    "uopc-core": {"cli", "config", "plugins", "tensor", "uop"},
    "uopc-autodiff": {"autodiff"},
    "uopc-backend-c": {"backend_c"},
    "uopc-nn": {"nn"},
}

every_distribution = pytest.mark.parametrize("name", SIBLINGS)


class Wheel:
    """A wheel's names, files and metadata."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with zipfile.ZipFile(path) as archive:
            self.files = [n for n in archive.namelist() if not n.endswith("/")]
            self.sources = {
                n: archive.read(n).decode() for n in self.files if n.endswith(".py")
            }
            self.text = {
                n.partition(".dist-info/")[2]: archive.read(n).decode()
                for n in self.files
                if ".dist-info/" in n
            }
        self.metadata: Message = Parser().parsestr(self.text["METADATA"])
        self.code = [n for n in self.files if ".dist-info/" not in n]

    def requirements(self, extra: str | None = None) -> dict[str, str]:
        """Distribution name -> what follows it, of one extra or of none."""
        found = {}
        for line in self.metadata.get_all("Requires-Dist") or []:
            requirement, _, marker = (part.strip() for part in line.partition(";"))
            wanted = re.search(r"extra == ['\"](\w+)['\"]", marker)
            if (wanted and wanted[1]) == extra:
                match = re.fullmatch(r"([\w.-]*\w)\s*(.*)", requirement)
                assert match, line
                found[match[1]] = match[2]
        return found


def imports(source: str) -> set[str]:
    """What a file imports from elsewhere: `numpy`, or `uopc.tensor` of this project."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            inside = node.module == "uopc"
            names |= {f"uopc.{a.name}" for a in node.names} if inside else {node.module}
    parts = [name.split(".") for name in names]
    tops = {".".join(p[:2]) if p[0] == "uopc" else p[0] for p in parts}
    return tops - sys.stdlib_module_names - {"uopc"}


@pytest.fixture(scope="session")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with four wheels and four sdists: nox's, or built here by hatchling."""
    if given := os.environ.get("WHEELHOUSE"):
        return Path(given)
    folder = tmp_path_factory.mktemp("dist")
    for name in SIBLINGS:
        command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
        subprocess.run(command, cwd=ROOT / "packages" / name, check=True)
    return folder


@pytest.fixture(scope="session")
def wheels(dist: Path) -> dict[str, Wheel]:
    """Distribution name -> its wheel."""
    stems = {name: name.replace("-", "_") for name in SIBLINGS}
    return {
        name: Wheel(dist / f"{stem}-{VERSION}-py3-none-any.whl")
        for name, stem in stems.items()
    }


def test_nothing_else_is_built(dist: Path) -> None:
    stems = sorted(f"{name.replace('-', '_')}-{VERSION}" for name in SIBLINGS)
    wheels = sorted(path.name for path in dist.glob("*.whl"))
    sdists = sorted(path.name for path in dist.glob("*.tar.gz"))
    assert wheels == [f"{stem}-py3-none-any.whl" for stem in stems]
    assert sdists == [f"{stem}.tar.gz" for stem in stems]


@every_distribution
def test_no_wheel_owns_the_namespace(wheels: dict[str, Wheel], name: str) -> None:
    for file in wheels[name].code:
        parts = file.split("/")
        if (name, parts[0]) == ("uopc-core", "uopc_launcher"):
            continue  # the one package that a stray file cannot hide
        assert parts[0] == "uopc", f"{file} is outside of the namespace"
        assert len(parts) > 2, f"{file} lies in the namespace, not in a package"


@every_distribution
def test_every_package_is_complete_and_typed(
    wheels: dict[str, Wheel], name: str
) -> None:
    files = set(wheels[name].code)
    packages = {f.split("/")[1] for f in files if f.startswith("uopc/")}
    assert PACKAGES[name] <= packages
    for package in packages:
        assert f"uopc/{package}/__init__.py" in files
        assert f"uopc/{package}/py.typed" in files
    # A folder of modules without __init__.py would be a namespace of its own.
    for folder in {file.rpartition("/")[0] for file in files if file.endswith(".py")}:
        assert f"{folder}/__init__.py" in files


@every_distribution
def test_wheel_has_what_the_source_has(wheels: dict[str, Wheel], name: str) -> None:
    source = ROOT / "packages" / name / "src"
    written = {
        path.relative_to(source).as_posix()
        for path in source.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert set(wheels[name].code) == written


def test_no_file_is_in_two_wheels(wheels: dict[str, Wheel]) -> None:
    owner: dict[str, str] = {}
    for name, wheel in wheels.items():
        for file in (f for f in wheel.code if f.startswith("uopc/")):
            package = file.split("/")[1]
            assert owner.setdefault(package, name) == name, f"two own uopc.{package}"


@every_distribution
def test_requirements(wheels: dict[str, Wheel], name: str) -> None:
    requirements = wheels[name].requirements()
    assert set(requirements) == SIBLINGS[name] | OTHERS[name]
    for sibling in SIBLINGS[name]:
        assert requirements[sibling] == f"=={VERSION}"
    for other in OTHERS[name]:
        assert requirements[other].startswith(">="), f"{other} has no lower bound"


@every_distribution
def test_imports_are_declared(wheels: dict[str, Wheel], name: str) -> None:
    allowed = OTHERS[name].union(*EXTRAS.get(name, {}).values())
    for sibling in {name} | SIBLINGS[name]:
        allowed |= {f"uopc.{file.split('/')[1]}" for file in wheels[sibling].code}
    for file, source in wheels[name].sources.items():
        assert imports(source) <= allowed, file


@every_distribution
def test_extras(wheels: dict[str, Wheel], name: str) -> None:
    extras = EXTRAS.get(name, {})
    assert set(wheels[name].metadata.get_all("Provides-Extra") or []) == set(extras)
    for extra, wanted in extras.items():
        assert set(wheels[name].requirements(extra)) == wanted


@every_distribution
def test_metadata(wheels: dict[str, Wheel], name: str) -> None:
    metadata = wheels[name].metadata
    assert metadata["Name"] == name
    assert metadata["Version"] == VERSION
    assert metadata["License-Expression"] == "MIT"
    assert metadata["Requires-Python"] == ">=3.11"
    assert "Typing :: Typed" in metadata.get_all("Classifier", [])
    readme = (ROOT / "packages" / name / "README.md").read_text()
    assert str(metadata.get_payload()).strip() == readme.strip()


@every_distribution
def test_licence_is_the_project_s(wheels: dict[str, Wheel], name: str) -> None:
    licence = (ROOT / "LICENSE").read_text()
    assert wheels[name].metadata.get_all("License-File") == ["LICENSE"]
    assert wheels[name].text["licenses/LICENSE"] == licence


@pytest.fixture(scope="session")
def sdists(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Distribution name -> the folder that its sdist unpacks to."""
    target = tmp_path_factory.mktemp("sdists")
    stems = {name: f"{name.replace('-', '_')}-{VERSION}" for name in SIBLINGS}
    for stem in stems.values():
        with tarfile.open(dist / f"{stem}.tar.gz") as archive:
            # Refuses absolute names, names with .., links to outside and devices.
            # Debian's Python 3.11.2 has no filters yet.
            if hasattr(tarfile, "data_filter"):
                archive.extraction_filter = tarfile.data_filter
            archive.extractall(target)
    assert sorted(p.name for p in target.iterdir()) == sorted(stems.values())
    return {name: target / stem for name, stem in stems.items()}


def source_files(folder: Path) -> dict[str, bytes]:
    """Name below `folder` -> content."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


@every_distribution
def test_sdist_has_what_the_source_has(sdists: dict[str, Path], name: str) -> None:
    found = source_files(sdists[name])
    metadata = found.pop("PKG-INFO")
    found.pop(".gitignore", None)  # hatchling adds the project's
    source = ROOT / "packages" / name
    wanted = {f"src/{n}": text for n, text in source_files(source / "src").items()}
    for file in ("LICENSE", "README.md", "pyproject.toml"):
        wanted[file] = (source / file).read_bytes()
    assert found == wanted
    parsed = Parser().parsestr(metadata.decode())
    assert (parsed["Name"], parsed["Version"]) == (name, VERSION)


@every_distribution
def test_sdist_builds_the_same_wheel(
    sdists: dict[str, Path], wheels: dict[str, Wheel], name: str, tmp_path: Path
) -> None:
    """As a packager has it: the sdist alone, without the repository around it."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel"]
    command += ["-d", str(tmp_path)]
    subprocess.run(command, cwd=sdists[name], check=True, capture_output=True)
    (path,) = tmp_path.iterdir()
    built, wheel = Wheel(path), wheels[name]
    assert path.name == wheel.path.name
    # RECORD has the hash of every file, and RECORD's own line has none.
    assert built.text == wheel.text
    assert built.sources == wheel.sources
    assert sorted(built.files) == sorted(wheel.files)


@every_distribution
def test_installed_entry_points(name: str) -> None:
    points = importlib.metadata.distribution(name).entry_points
    plugins = {p.name: p.value for p in points.select(group="uopc.plugins")}
    scripts = {p.name: p.value for p in points.select(group="console_scripts")}
    assert plugins == PLUGINS[name]
    assert scripts == ({"uopc": "uopc_launcher:main"} if name == "uopc-core" else {})
    for point in points:
        assert point.load()


def test_installed_namespace_has_no_file() -> None:
    command = [sys.executable, "-c", "import uopc; print(uopc.__file__)"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "None"
