"""The `uopc` command: its subcommands, their output and their exit codes."""

from __future__ import annotations

import importlib.metadata
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from uopc.cli import doctor, main
from uopc.cli.table import format_table
from uopc.plugins import PluginHost, PluginWarning, use


class FakeBackend:
    """As much of a backend as the doctor looks at."""

    def __init__(self, priority: int, reason: str | None = None) -> None:
        self.priority = priority
        self._reason = reason

    def unavailable(self) -> str | None:
        return self._reason


def healthy(fake: SimpleNamespace, **backends: Any) -> PluginHost:
    """A host as an installation without faults has it."""

    def uopc_register_backends(register: Any) -> None:
        for name, factory in (backends or {"interp": lambda: FakeBackend(0)}).items():
            register(name, factory)

    core = fake.plugin(uopc_register_backends=uopc_register_backends)
    return PluginHost([fake.entry_point("core", core, "uopc-core 0.1")])


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Distributions as they would be installed, and nothing stray on the path."""
    dists = [
        SimpleNamespace(metadata={"Name": name}, version=version)
        for name, version in (
            ("numpy", "2.0"),
            ("uopc_core", "0.1"),
            ("uopc-core", "0.0.older"),
            (None, None),
            ("other", "9"),
        )
    ]
    monkeypatch.setattr(importlib.metadata, "distributions", lambda: dists)
    monkeypatch.setattr(doctor, "stray_modules", lambda path: [])


def test_plugins_table_is_aligned(
    erf: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["plugins"])
    header, row = capsys.readouterr().out.splitlines()
    assert header.split() == [
        "name",
        "distribution",
        "version",
        "file",
        "registered",
        "status",
    ]
    assert row == (
        "erf   uopc-erf      0.2      /somewhere/uopc_fake.py  "
        "ops 1, backends 1  loaded"
    )
    assert header.index("status") == row.index("loaded")


def test_a_cell_of_several_lines_stays_in_its_column() -> None:
    rows = [("a", "one\ntwo and\n", ""), ("longer", "x", "y\nz")]
    assert format_table(rows).splitlines() == [
        "a       one      -",
        "        two and",
        "longer  x        y",
        "                 z",
    ]


def test_plugins_without_any(capsys: pytest.CaptureFixture[str]) -> None:
    with use(PluginHost([])):
        assert main(["plugins"]) == 0
    assert capsys.readouterr().out == "no plugins\n"


@pytest.mark.parametrize("strict", [False, True])
def test_plugins_shows_failures(
    fake: SimpleNamespace, capsys: pytest.CaptureFixture[str], strict: bool
) -> None:
    points = [
        fake.entry_point("erf", ImportError("no erf"), "uopc-erf 0.2"),
        fake.entry_point("quiet", fake.op_plugin()),
    ]
    with use(PluginHost(points, block=["quiet"], strict=strict)):
        assert main(["plugins"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["erf", "uopc-erf", "0.2", "-", "-", "failed"]
    assert lines[2].split() == ["quiet", "-", "-", "-", "-", "blocked"]
    assert lines[4:] == [
        "plugin 'erf' (uopc-erf 0.2) failed in import: ImportError: no erf"
    ]


def command_host(fake: SimpleNamespace, *others: Any, **command: Any) -> PluginHost:
    """A host whose plugin adds the command `shout`."""
    arguments = {
        "name": "shout",
        "help": "say it 100% louder",
        "configure": lambda parser: parser.add_argument("run"),
        "run": lambda args: print(args.run.upper()),
    } | command
    plugin = fake.plugin(uopc_register_commands=lambda cli: cli.add(**arguments))
    return PluginHost([fake.entry_point("shout", plugin, "uopc-shout 3"), *others])


def test_a_plugin_adds_a_command(
    fake: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    with use(command_host(fake)):
        assert main(["shout", "hello"]) == 0
        assert capsys.readouterr().out == "HELLO\n"
        with pytest.raises(SystemExit) as caught:
            main(["--help"])
    assert caught.value.code == 0
    assert "say it 100% louder" in capsys.readouterr().out


def test_the_exit_code_is_the_commands(fake: SimpleNamespace) -> None:
    with use(command_host(fake, run=lambda args: 7)):
        assert main(["shout", "x"]) == 7


def test_a_command_reports_plugins_that_failed(
    fake: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = fake.entry_point("bad", ImportError("x"))
    with use(command_host(fake, bad)), pytest.warns(PluginWarning, match="'bad'"):
        assert main(["shout", "x"]) == 0
    strict = command_host(fake, bad)
    strict._strict = True
    capsys.readouterr()
    with use(strict):
        assert main(["shout", "x"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "uopc: plugin 'bad' failed in import: ImportError: x\n"


def test_a_command_that_cannot_be_configured(
    fake: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    with use(command_host(fake, configure=lambda parser: 1 // 0)):
        assert main(["plugins"]) == 0
        assert main(["shout"]) == 1
    assert capsys.readouterr().err == (
        "uopc: plugin 'shout' (uopc-shout 3) failed in configuring command 'shout': "
        "ZeroDivisionError: integer division or modulo by zero\n"
    )


def test_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with use(PluginHost([])):
        assert main([]) == 2
        assert capsys.readouterr().err.startswith("usage: uopc")
        with pytest.raises(SystemExit) as caught:
            main(["docter"])
    assert caught.value.code == 2


def test_version(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def version(name: str) -> str:
        raise PackageNotFoundError(name)

    for replacement, text in ((lambda name: "0.1", "uopc 0.1"), (version, "uopc (not")):
        monkeypatch.setattr(importlib.metadata, "version", replacement)
        with use(PluginHost([])), pytest.raises(SystemExit) as caught:
            main(["--version"])
        assert caught.value.code == 0
        assert capsys.readouterr().out.startswith(text)


@pytest.mark.usefixtures("installed")
def test_doctor_finds_nothing_wrong(
    fake: SimpleNamespace,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("UOPC_OPT", "2")
    monkeypatch.setenv("UOPC_MINE", "2")
    host = healthy(fake, interp=lambda: FakeBackend(0), c=lambda: FakeBackend(10))
    host.register_module(fake.plugin(uopc_doctor=lambda: [("compiler", "cc 12")]), "x")
    with use(host):
        assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    rows = [line.split(maxsplit=1) for line in out.splitlines() if line]
    assert ["uopc-core", "0.1"] in rows
    assert ["numpy", "2.0"] in rows
    assert ["compiler", "cc 12"] in rows
    assert ["UOPC_OPT", "2"] in rows
    assert ["UOPC_MINE", "set, but no variable of uopc's own"] in rows
    assert "active backend  c, the available one of highest priority" in out
    assert "other" not in out
    assert out.endswith("no problems found\n")


def problems(host: PluginHost) -> list[str]:
    return doctor.examine(host).problems


@pytest.mark.usefixtures("installed")
def test_doctor_on_names_that_nothing_has(
    fake: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UOPC_NAN", "1")
    monkeypatch.setenv("UOPC_PLUGINS_BLOCK", "autodif")
    assert problems(healthy(fake)) == [
        "UOPC_NAN is set, which uopc does not read; perhaps UOPC_NANS is meant",
        "UOPC_PLUGINS_BLOCK names 'autodif', which no plugin is called; there are core",
    ]


@pytest.mark.usefixtures("installed")
def test_doctor_names_what_is_wrong_with_plugins(fake: SimpleNamespace) -> None:
    points = [
        fake.entry_point("erf", ImportError("no erf"), "uopc-erf 0.2"),
        fake.entry_point("rows", fake.plugin(uopc_doctor=lambda: [1])),
        fake.entry_point("quiet", fake.op_plugin()),
    ]
    found = problems(PluginHost(points, block=["quiet"], strict=True))
    assert "plugin 'core' is missing: there are no ops" in found
    assert "plugin 'erf' (uopc-erf 0.2) failed in import: ImportError: no erf" in found
    assert any(text.startswith("plugin 'rows' failed in uopc_doctor") for text in found)
    assert "no backend is available" in found
    assert len(found) == 4


@pytest.mark.usefixtures("installed")
def test_doctor_on_backends(
    fake: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = healthy(
        fake,
        interp=lambda: FakeBackend(0),
        c=lambda: FakeBackend(10, "no compiler.\nInstall one."),
        broken=lambda: 1 // 0,
    )
    report = doctor.examine(host)
    assert ("backend c", "unavailable: no compiler, priority 10") in report.rows
    assert any(row[1].startswith("interp, the available") for row in report.rows)
    broken = "ZeroDivisionError: integer division or modulo by zero"
    assert report.problems == [f"backend 'broken' failed: {broken}"]

    monkeypatch.setenv("UOPC_BACKEND", "interp")
    assert ("active backend", "interp, by UOPC_BACKEND") in doctor.examine(host).rows
    monkeypatch.setenv("UOPC_BACKEND", "c")
    assert "UOPC_BACKEND='c': no compiler.\nInstall one." in problems(host)
    monkeypatch.setenv("UOPC_BACKEND", "gpu")
    assert "UOPC_BACKEND='gpu': no plugin registers it" in problems(host)


@pytest.mark.usefixtures("installed")
def test_doctor_on_bad_variables_and_missing_distributions(
    fake: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UOPC_PLUGINS_STRICT", "maybe")
    monkeypatch.setenv("UOPC_OPT", "9")
    monkeypatch.setattr(importlib.metadata, "distributions", list)
    found = problems(healthy(fake))
    assert "UOPC_PLUGINS_STRICT='maybe': expected 0 or 1" in found
    assert "UOPC_OPT='9': expected an integer from 0 to 2" in found
    assert "numpy is not installed" in found
    assert any(text.startswith("uopc-core is not installed") for text in found)


@pytest.mark.parametrize("name", ["uopc/__init__.py", "uopc/__init__.pyc", "uopc.py"])
def test_doctor_finds_a_stray_module(
    fake: SimpleNamespace,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
) -> None:
    stray = tmp_path / name
    stray.parent.mkdir(exist_ok=True)
    stray.write_text("")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path), str(tmp_path)])
    with use(healthy(fake)):
        assert main(["doctor"]) == 1
    out = capsys.readouterr().out
    assert out.count(f"problem: {stray} hides every other distribution") == 1
    assert f"delete {stray}" in out


def test_stray_modules_passes_over_namespaces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "uopc" / "config").mkdir(parents=True)
    (tmp_path / "uopc" / "config" / "__init__.py").write_text("")
    monkeypatch.chdir(tmp_path)
    assert doctor.stray_modules(["", str(tmp_path), str(tmp_path / "missing")]) == []
    (tmp_path / "uopc.py").write_text("")
    assert doctor.stray_modules([""]) == [tmp_path / "uopc.py"]


def test_a_variable_at_fault_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("UOPC_PLUGINS_STRICT", "zz")
    with use(PluginHost()):
        assert main(["show", "x"]) == 1
    text = capsys.readouterr()
    assert text.err == "uopc: UOPC_PLUGINS_STRICT='zz': expected 0 or 1\n"
    assert not text.out
