"""Every environment variable that uopc reads, in one table."""

from uopc.config.table import (
    VARIABLES,
    ConfigError,
    Variable,
    get,
    override,
    overrides,
    overriding,
)

__all__ = [
    "VARIABLES",
    "ConfigError",
    "Variable",
    "get",
    "override",
    "overrides",
    "overriding",
]
