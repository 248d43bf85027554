"""The search for a better schedule of one nest: from the chosen one, knob by knob."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

from uopc.backend_c.pool import threads
from uopc.backend_c.spellings import Spellings
from uopc.backend_c.tuning.memory import Memory
from uopc.backend_c.tuning.trials import Clock, Trial, compiled, ratio
from uopc.schedule import Target
from uopc.schedule.candidates import Candidate, candidates
from uopc.schedule.knobs import AS_ESTIMATED, Knobs
from uopc.uop import UOp

BETTER = 0.95
"""What wins takes no more than that of the time before."""
PROMISING = 0.97
"""What is that much better is a place to look around."""
HOPELESS = 2.0
"""What takes that many times as long in its first run is not measured further."""
LOOKS = 5  # rounds of a first look
LIKELY = 3  # of the best are looked at again
DUEL = 15  # rounds of the last two
WON = 12  # of which the winner has to win so many: by chance, once in 57
AT_ONCE = 8  # candidates that are compiled together


@dataclass(frozen=True)
class Found:
    """What a search has found.

    Attributes:
        before: seconds of a run with the schedule that there was.
        after: seconds with the winner; ``before`` if there is none.
        winner: the better schedule, if any.
        tried: how many were measured.
    """

    before: float
    after: float
    winner: Candidate | None
    tried: int


class Search:
    """Looks for a better schedule for a loop program.

    Args:
        plain: the program without a schedule.
        current: the schedule that it has.
        target: the machine as schedules see it.
        spellings: how ops are written.
        opt: the level of UOPC_OPT.
        tell: gets a line about each candidate.
    """

    def __init__(
        self,
        plain: UOp,
        current: Candidate,
        target: Target,
        spellings: Spellings,
        opt: int,
        tell: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._tell = tell
        self._plain, self._target = plain, target
        self._spellings, self._opt = spellings, opt
        self._memory = Memory(current.sink)
        self._clock = Clock(self._memory)
        self._seen = {current.sink}
        self._tried = 0
        (self._current,) = self._compiled([current])
        self._clock.once(self._current)
        self._expected = self._memory.results()

    def run(self, deadline: float) -> Found:
        """Search until there is nothing better near the best, or no time left."""
        best, least, around = self._current, 1.0, AS_ESTIMATED
        while time.monotonic() < deadline:
            start = least
            looked = sorted(self._looks(around, deadline), key=lambda look: look[1])
            likely = [trial for trial, part in looked if part < least][:LIKELY]
            for trial, part in self._again(likely, deadline):
                if part < least:
                    best, least = trial, part
            knobs = best.candidate.knobs
            if knobs is None or least > start * PROMISING:
                break
            around = knobs
        return self._duel(best, deadline)

    def _looks(self, around: Knobs, deadline: float) -> Iterator[tuple[Trial, float]]:
        """New candidates near some knobs, and what part of the time they take."""
        near = candidates(self._plain, self._target, around)
        fresh = (c for c in near if c.sink not in self._seen and self._may_win(c))
        while time.monotonic() < deadline:
            batch = list(islice(fresh, AT_ONCE))
            if not batch:
                return
            self._seen.update(c.sink for c in batch)
            trials = [t for t in self._compiled(batch) if self._is_right(t)]
            times = self._clock.rounds([self._current, *trials], LOOKS, deadline)
            for trial, each in zip(trials, times[1:], strict=True):
                part = ratio(times[0], each)
                self._tell(f"x{part:.2f} {trial.candidate.knobs} {trial.candidate}")
                yield trial, part

    def _may_win(self, candidate: Candidate) -> bool:
        """Not for want of threads: what is kept serves any number of them."""
        knobs = candidate.knobs
        return threads() > 1 or knobs is None or knobs.rounds >= 1

    def _again(
        self, likely: list[Trial], deadline: float
    ) -> Iterator[tuple[Trial, float]]:
        """The most likely ones with more rounds, as some were merely lucky."""
        if likely:
            first, *others = self._clock.rounds(
                [self._current, *likely], 2 * LOOKS, deadline
            )
            for trial, each in zip(likely, others, strict=True):
                yield trial, ratio(first, each)

    def _compiled(self, batch: list[Candidate]) -> list[Trial]:
        return compiled(batch, self._memory, self._spellings, self._opt)

    def _is_right(self, trial: Trial) -> bool:
        """Whether a candidate computes the same, and in no hopeless time."""
        self._tried += 1
        self._clock.once(trial)
        if not self._memory.agree(self._expected, self._memory.results()):
            self._tell(f"other results {trial.candidate.knobs} {trial.candidate}")
            return False
        (before,), (after,) = self._clock.rounds([self._current, trial], 1, 0.0)
        times = after / before
        if times > HOPELESS:
            self._tell(f"x{times:.2f} {trial.candidate.knobs} {trial.candidate}")
        return times <= HOPELESS

    def _duel(self, best: Trial, deadline: float) -> Found:
        """Measured anew, as the best of many looked better than it is."""
        if best is self._current:
            (times,) = self._clock.rounds([best], LOOKS, deadline)
            seconds = statistics.median(times)
            return Found(seconds, seconds, None, self._tried)
        before, after = self._clock.rounds([self._current, best], DUEL, float("inf"))
        won = sum(b < a for a, b in zip(before, after, strict=True))
        seconds, part = statistics.median(before), ratio(before, after)
        if part > BETTER or won < WON:
            return Found(seconds, seconds, None, self._tried)
        return Found(seconds, part * seconds, best.candidate, self._tried)
