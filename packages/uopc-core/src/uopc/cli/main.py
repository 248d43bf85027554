"""Parsing the command line and running a subcommand."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import sys
from collections.abc import Callable, Sequence

from uopc.cli import accuracy, graph, ops, show
from uopc.cli.doctor import run_doctor
from uopc.cli.files import CommandError
from uopc.cli.plugins_command import run_plugins
from uopc.config import ConfigError
from uopc.plugins import Command, PluginError, PluginFailure, PluginHost, current

# A name that no plugin's argument will have.
RUN = "_uopc_run"
# Commands of this project's other distributions, to name those that are missing.
ELSEWHERE = {
    "grad": "uopc-autodiff",
    "compile": "uopc-backend-c",
    "tune": "uopc-backend-c",
}
OWN = (
    Command("show", "check a graph and print it", show.configure, show.run_show),
    Command("graph", "draw a graph", graph.configure, graph.run_graph),
    Command("ops", "print the op table", ops.configure, ops.run_ops),
    Command(
        "accuracy",
        "measure how exact the functions of Tensor are",
        accuracy.configure,
        accuracy.run_accuracy,
    ),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run `uopc` with the arguments `argv` (None: the process's); the exit code.

    Wrong usage and `--help` exit through `SystemExit`, as argparse does.
    """
    words = sys.argv[1:] if argv is None else list(argv)
    try:
        code = _run(words)
        sys.stdout.flush()
        return code
    except (CommandError, PluginError, ConfigError) as error:
        print(f"uopc: {error}", file=sys.stderr)
    except OSError as error:
        if not isinstance(error, BrokenPipeError):
            print(f"uopc: cannot write: {error.strerror or error}", file=sys.stderr)
        # The reader has gone (`uopc plugins | head`), or the disk is full: spare
        # Python's last flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1


def _run(words: Sequence[str]) -> int:
    """Find the subcommand and run it."""
    parser = _make_parser(current())
    if missing := _missing_command(current(), words[:1]):
        raise CommandError(missing)
    args = parser.parse_args(words)
    run = getattr(args, RUN)
    if run is None:
        parser.print_help(sys.stderr)
        return 2
    return int(run(args) or 0)


def _make_parser(host: PluginHost) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="uopc", description="A tensor compiler you can read."
    )
    parser.add_argument("--version", action="version", version=_version())
    parser.set_defaults(**{RUN: None})
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")

    def add(name: str, text: str) -> argparse.ArgumentParser:
        # argparse formats a help text with %, which a plugin's text may contain.
        text = text.replace("%", "%%")
        return commands.add_parser(name, help=text, description=text)

    # These two must work when plugins do not, so they are not plugins.
    add("plugins", "list the plugins and what they registered").set_defaults(
        **{RUN: run_plugins}
    )
    add("doctor", "examine the installation").set_defaults(**{RUN: run_doctor})
    for command in (*OWN, *host.load(quiet=True).commands.values()):
        sub = add(command.name, command.help)
        run = _reporting(host, command)
        try:
            command.configure(sub)
        except Exception as error:
            run = _failing(host, command, error)
        sub.set_defaults(**{RUN: run})
    return parser


def _missing_command(host: PluginHost, words: Sequence[str]) -> str:
    """Why a command of another distribution is not there, if one is asked for."""
    name = next(iter(words), "")
    distribution = ELSEWHERE.get(name)
    if distribution is None or name in host.load(quiet=True).commands:
        return ""
    for info in host.plugins:
        if info.distribution == distribution and info.status == "blocked":
            return f"the command {name!r} comes with the blocked plugin {info.name!r}"
    note = host.failure_note()
    return (
        f"the command {name!r} needs {distribution}: pip install {distribution}{note}"
    )


def _reporting(
    host: PluginHost, command: Command
) -> Callable[[argparse.Namespace], int]:
    """Run a plugin's command, after a report of the plugins that failed."""

    def run(args: argparse.Namespace) -> int:
        host.load()
        return command.run(args)

    return run


def _failing(
    host: PluginHost, command: Command, error: Exception
) -> Callable[[argparse.Namespace], int]:
    """Report a plugin whose `configure` raised, when its command is asked for.

    Not before: one plugin's mistake must not take `uopc doctor` away.
    """
    owner = host.load(quiet=True).owners["commands", command.name]
    info = next(info for info in host.plugins if info.name == owner)
    phase = f"configuring command {command.name!r}"
    failure = PluginFailure(owner, info.distribution, info.version, phase, error)

    def run(args: argparse.Namespace) -> int:
        raise PluginError([failure]) from error

    return run


def _version() -> str:
    try:
        return f"uopc {importlib.metadata.version('uopc-core')}"
    except importlib.metadata.PackageNotFoundError:
        return "uopc (not installed)"
