"""Every environment variable that uopc reads, in one table."""

from uopc.config.table import VARIABLES, Variable, get, overriding

__all__ = ["VARIABLES", "Variable", "get", "overriding"]
