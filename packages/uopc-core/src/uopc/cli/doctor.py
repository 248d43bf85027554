"""`uopc doctor`: what is installed, what is in use, and what is wrong."""

from __future__ import annotations

import argparse
import difflib
import importlib.metadata
import os
import platform
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib.machinery import all_suffixes
from pathlib import Path
from typing import Any

from uopc import config
from uopc.cli.table import format_table
from uopc.plugins import PluginHost, current
from uopc.plugins.loading import CORE


@dataclass
class Report:
    """What the doctor found: rows to show, and problems to solve."""

    rows: list[tuple[str, str]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def run_doctor(args: argparse.Namespace) -> int:
    """Print the examination of the active host; 1 if something is wrong."""
    report = examine(current())
    print(format_table(report.rows))
    print()
    if not report.problems:
        print("no problems found")
        return 0
    for problem in report.problems:
        print(f"problem: {problem}")
    return 1


def examine(host: PluginHost) -> Report:
    """Examine the installation, step by step; no step stops the next."""
    report = Report()
    report.rows.append(("python", f"{platform.python_version()} ({sys.executable})"))
    report.rows.append(("platform", platform.platform()))
    _distributions(report)
    _variables(report)
    _plugins(report, host)
    _plugin_rows(report, host)
    _backends(report, host)
    for path in stray_modules(sys.path):
        report.problems.append(
            f"{path} hides every other distribution of uopc, which is a namespace "
            f"without a module of its own; delete {path}"
        )
    return report


def stray_modules(path: Iterable[str]) -> list[Path]:
    """Files in the folders of `path` that make `uopc` something else than a namespace.

    One is enough, wherever it is in the path: an ordinary package or module wins over
    all parts of a namespace.
    """
    found: dict[Path, Path] = {}
    for entry in path:
        for stem in ("uopc/__init__", "uopc"):
            for suffix in all_suffixes():
                file = Path(entry or os.curdir, stem + suffix)
                if file.is_file():
                    found.setdefault(file.resolve(), file.absolute())
    return list(found.values())


def _distributions(report: Report) -> None:
    found: dict[str, str] = {}
    for dist in importlib.metadata.distributions():
        # The first on the path is the one that is imported. Broken metadata has None.
        name = re.sub(r"[-_.]+", "-", dist.metadata["Name"] or "").lower()
        if name == "numpy" or name == "uopc" or name.startswith("uopc-"):
            found.setdefault(name, str(dist.version))
    report.rows.extend(sorted(found.items()))
    if "numpy" not in found:
        report.problems.append("numpy is not installed")
    if "uopc-core" not in found:
        report.problems.append(
            "uopc-core is not installed, so its plugins are not found; install it, "
            "rather than put its source on the path"
        )


def _variables(report: Report) -> None:
    for variable in config.VARIABLES:
        try:
            value = config.get(variable.name)
        except ValueError as error:
            report.problems.append(str(error))
            continue
        if value != variable.default:
            report.rows.append((variable.name, repr(value)))
    known = {variable.name for variable in config.VARIABLES}
    for name in sorted(os.environ):
        if name.startswith("UOPC_") and name not in known:
            report.rows.append((name, "set, but no variable of uopc's own"))
            if near := difflib.get_close_matches(name, sorted(known), 1, 0.8):
                report.problems.append(
                    f"{name} is set, which uopc does not read; perhaps {near[0]} is "
                    "meant"
                )


def _plugins(report: Report, host: PluginHost) -> None:
    status = {info.name: info.status for info in host.plugins}
    loaded = [name for name, value in status.items() if value == "loaded"]
    blocked = [name for name, value in status.items() if value == "blocked"]
    report.rows.append(("plugins", ", ".join(loaded)))
    if blocked:
        report.rows.append(("blocked plugins", ", ".join(blocked)))
    for name in config.get("UOPC_PLUGINS_BLOCK"):
        if name not in status:
            there = ", ".join(sorted(status))
            report.problems.append(
                f"UOPC_PLUGINS_BLOCK names {name!r}, which no plugin is called; there "
                f"are {there}"
            )
    if CORE not in loaded:
        report.problems.append(
            f"plugin {CORE!r} is {status.get(CORE, 'missing')}: there are no ops"
        )
    report.problems.extend(map(str, host.failures))


def _plugin_rows(report: Report, host: PluginHost) -> None:
    for name, rows, error in host.call_each("uopc_doctor"):
        try:
            if error is not None:
                raise error
            for label, value in [(str(label), str(value)) for label, value in rows]:
                if label == "problem":
                    report.problems.append(value)
                else:
                    report.rows.append((label, value))
        except Exception as mistake:
            kind = type(mistake).__name__
            report.problems.append(
                f"plugin {name!r} failed in uopc_doctor: {kind}: {mistake}"
            )


def _backends(report: Report, host: PluginHost) -> None:
    usable: dict[str, int] = {}
    reasons: dict[str, str] = {}
    for name, factory in host.load(quiet=True).backends.items():
        try:
            backend: Any = factory()
            reason = backend.unavailable()
            priority = int(backend.priority)
        except Exception as error:
            reasons[name] = f"{type(error).__name__}: {error}"
            report.problems.append(f"backend {name!r} failed: {reasons[name]}")
            continue
        if reason is None:
            usable[name] = priority
        else:
            reasons[name] = str(reason)
        # The first line says what is wrong, those after it what to do.
        short = str(reason).partition("\n")[0].rstrip(".")
        state = f"unavailable: {short}" if reason else "available"
        report.rows.append((f"backend {name}", f"{state}, priority {priority}"))
    _active_backend(report, usable, reasons)


def _active_backend(
    report: Report, usable: dict[str, int], reasons: dict[str, str]
) -> None:
    wanted = config.get("UOPC_BACKEND")
    if wanted in usable:
        report.rows.append(("active backend", f"{wanted}, by UOPC_BACKEND"))
    elif wanted:
        reason = reasons.get(wanted, "no plugin registers it")
        report.problems.append(f"UOPC_BACKEND={wanted!r}: {reason}")
    elif usable:
        best = max(usable, key=lambda name: usable[name])
        why = "the available one of highest priority"
        report.rows.append(("active backend", f"{best}, {why}"))
    else:
        report.problems.append("no backend is available")
