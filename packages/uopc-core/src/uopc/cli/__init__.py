"""The `uopc` command, and what a plugin's command that reads graphs needs."""

from uopc.cli.files import CommandError, GraphFile, read_graph, write_text
from uopc.cli.main import main

__all__ = ["CommandError", "GraphFile", "main", "read_graph", "write_text"]
