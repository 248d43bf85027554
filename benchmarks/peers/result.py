"""What one process found out about one workload."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field


@dataclass
class Result:
    """Times are milliseconds of the wall clock.

    Attributes:
        column: the name of what was measured.
        workload: the name of what it computed.
        threads: how many processors it had.
        median: over the samples, each a mean over calls that take 2 ms together.
        least: of the samples.
        samples: how many there are.
        first: the first call, with empty caches: tracing, compiling and running.
        memory: the process's peak, in megabytes.
        foreign: how many processors others were using meanwhile.
        version: of the framework.
        values: what is compared with others: losses of the first calls, or a digest.
        error: why there is nothing.
    """

    column: str
    workload: str
    threads: int
    median: float = 0
    least: float = 0
    samples: int = 0
    first: float = 0
    memory: float = 0
    foreign: float = 0
    version: str = ""
    values: list[float] = field(default_factory=list)
    error: str = ""

    def to_json(self) -> str:
        """One line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, line: str) -> Result:
        """The result that `to_json` wrote."""
        return cls(**json.loads(line))
