"""What is known of a plugin that failed, and how it is said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class PluginWarning(RuntimeWarning):
    """A plugin failed and was left out."""


@dataclass(frozen=True)
class PluginFailure:
    """One plugin that failed to load; nothing of it was committed.

    `phase` is "import", "validate", or the name of the hook that raised.
    `distribution` and `version` are empty for a plugin added in-process.
    """

    name: str
    distribution: str
    version: str
    phase: str
    error: BaseException

    def __str__(self) -> str:
        origin = f" ({self.distribution} {self.version})" if self.distribution else ""
        return (
            f"plugin {self.name!r}{origin} failed in {self.phase}: {self.error_text()}"
        )

    def error_text(self) -> str:
        """The error's type and message, in one line."""
        message = " ".join(str(self.error).split())
        kind = type(self.error).__name__
        return f"{kind}: {message}" if message else kind


class PluginError(RuntimeError):
    """Plugins failed, and strict loading was asked for."""

    def __init__(self, failures: Sequence[PluginFailure]) -> None:
        super().__init__("; ".join(str(failure) for failure in failures))
        self.failures = tuple(failures)
