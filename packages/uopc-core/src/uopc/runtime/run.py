"""Compute nodes: find the plan, bind its buffers, make one call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from uopc.config import get
from uopc.dtype import u8
from uopc.kernelize import Plan, make_plan, plan_graph
from uopc.runtime.backends import Backend, Program, default_backend, made_once
from uopc.runtime.buffers import buffer_data, copied, empty
from uopc.runtime.counters import count
from uopc.runtime.debug import show_plan
from uopc.runtime.memory import MemoryPlan, plan_memory
from uopc.runtime.nans import require_finite
from uopc.runtime.profiling import run_program, watched
from uopc.runtime.validate import plan_has_meaning, require_text_form
from uopc.spec import SpecError
from uopc.uir import to_uir
from uopc.uop import Ops, UOp

Array = np.ndarray[Any, Any]


class Runnable:
    """A plan compiled for one backend, with its memory plan.

    Attributes:
        program: what runs.
        memory: where temporaries are in the arena.
        over: the inputs that outputs are written over, as numbers of plan buffers.
    """

    def __init__(self, plan: Plan, backend: Backend, roots: Sequence[UOp]) -> None:
        self.program: Program = backend.compile(plan)
        self.memory: MemoryPlan = plan_memory(plan)
        self.over = {k.out: k.over for k in plan.kernels if k.over is not None}
        show_plan(roots, plan, self.memory, backend.name, self.program)


def _check(
    roots: Sequence[UOp], leaves: Mapping[UOp, UOp], plan: Plan, inputs: Sequence[UOp]
) -> None:
    """What UOPC_CHECK asks for after a plan has been made."""
    level = get("UOPC_CHECK")
    if level >= 2:
        for graph in (UOp(Ops.SINK, tuple(roots), "roots"), plan_graph(plan)):
            require_text_form(graph, "kernelize")
    if level >= 3 and not plan_has_meaning(roots, leaves, plan, inputs):
        raise SpecError(
            "kernelize changed what the graph computes, from\n"
            f"{to_uir(UOp(Ops.SINK, tuple(roots), 'roots'))}\n"
            f"to\n{to_uir(plan_graph(plan))}"
        )


@dataclass(frozen=True, eq=False)
class Run:
    """A plan that was run once.

    Attributes:
        plan: the plan.
        inputs: the BUFFER nodes that it read, which are its first buffers.
        arrays: the flat memory of each buffer of the plan; an output written over an
            input has that input's.
        backend: where it ran.
        runnable: what ran; None if there was nothing to do.
    """

    plan: Plan
    inputs: Sequence[UOp]
    arrays: Sequence[Array]
    backend: Backend
    runnable: Runnable | None

    @property
    def results(self) -> list[Array]:
        """The flat memory of each root."""
        return [self.arrays[o] for o in self.plan.outputs]


def realize(
    roots: Sequence[UOp],
    leaves: Mapping[UOp, UOp] | None = None,
    backend: Backend | None = None,
) -> list[Array]:
    """The flat memory of ``roots``, computed in one plan by one call.

    ``leaves`` are nodes already computed, with the buffers that hold them. A
    root that is a buffer's reshape gives that buffer's own array. The arrays are
    of the dtype's ``storage``; ``dtype.load`` gives their values.
    """
    return compute(roots, leaves, backend).results


def compute(
    roots: Sequence[UOp],
    leaves: Mapping[UOp, UOp] | None = None,
    backend: Backend | None = None,
) -> Run:
    """As `realize`, but tells what was run, and on which memory."""
    return Work(roots, leaves or {}, backend).run({})


class Work:
    """Nodes to compute, and the program for it, made or found.

    Args:
        roots: the nodes.
        leaves: nodes already computed, and their buffers.
        backend: where to run.
        homes: by position of a root, the buffer whose new version it will be.
        asked: how many roots somebody asked for; UOPC_NANS is about these. All if None.

    Attributes:
        inputs: the buffers that will be read.
    """

    def __init__(
        self,
        roots: Sequence[UOp],
        leaves: Mapping[UOp, UOp],
        backend: Backend | None = None,
        homes: Mapping[int, UOp] | None = None,
        asked: int | None = None,
    ) -> None:
        self._asked = asked
        self.backend = backend = backend or default_backend()
        self._roots, self._leaves = roots, leaves
        self._homes = homes or {}
        if not getattr(backend, "in_place", False):
            self._homes = {}
        self._plan, self.inputs = make_plan(
            roots,
            leaves,
            backend.supports,
            backend.name,
            self._homes,
            getattr(backend, "in_one_nest", None),
        )
        self._runnable: Runnable | None = None
        if self._plan.kernels:
            self._runnable = self._plan.programs.get(backend.name) or self._compiled()

    def _compiled(self) -> Runnable:
        def make() -> Runnable:
            _check(self._roots, self._leaves, self._plan, self.inputs)
            return Runnable(self._plan, self.backend, self._roots)

        return made_once(self._plan, self.backend.name, make)

    def run(self, spare: Mapping[UOp, Array]) -> Run:
        """Run it, once.

        ``spare`` has the data of buffers that nobody else will read: the values of
        roots may be written over them. An error leaves them as they were.
        """
        plan, runnable = self._plan, self._runnable
        arrays = [spare[b] if b in spare else buffer_data(b) for b in self.inputs]
        if runnable is None:
            arrays += [empty(b.size, b.dtype) for b in plan.buffers[len(arrays) :]]
            return Run(plan, self.inputs, arrays, self.backend, None)
        watching = get("UOPC_NANS")
        # What is found may be an error, which must leave everything as it was.
        written = self._bind(runnable, arrays, {} if watching else spare)
        before = [a.copy() for a in arrays[: len(self.inputs)]] if watching else None
        run = Run(plan, self.inputs, arrays, self.backend, runnable)
        call_program(run, written)
        if before is not None:
            given = dict(zip(self.inputs, before, strict=True))
            asked = slice(self._asked)
            roots, results = self._roots[asked], run.results[asked]
            require_finite(roots, self._leaves, given, results)
        return run

    def _bind(
        self, runnable: Runnable, arrays: list[Array], spare: Mapping[UOp, Array]
    ) -> list[int]:
        """Add the memory of outputs and temporaries to that of the inputs.

        Returns the outputs that are written over data, of which some may be read.
        """
        buffers, offsets = self._plan.buffers, runnable.memory.offsets
        bound = self._over_spare(runnable, spare)
        # A fresh arena per run: eight threads may run one plan at once.
        arena = empty(runnable.memory.arena_bytes, u8)
        nbytes = arena.nbytes
        for old in runnable.over.values():
            if self.inputs[old] not in spare:  # somebody reads it later
                arrays[old] = copied(arrays[old], buffers[old].dtype)
                nbytes += buffers[old].nbytes
        for i in range(len(arrays), len(buffers)):
            b = buffers[i]
            if i in runnable.over:
                arrays.append(arrays[runnable.over[i]])
            elif i in bound:
                arrays.append(bound[i])
            elif i in offsets:
                part = arena[offsets[i] : offsets[i] + b.nbytes]
                arrays.append(part.view(b.dtype.storage))
            else:
                arrays.append(empty(b.size, b.dtype))
                nbytes += b.nbytes
        count(native_calls=1, bytes_allocated=nbytes)
        return [*runnable.over, *bound]

    def _over_spare(
        self, runnable: Runnable, spare: Mapping[UOp, Array]
    ) -> dict[int, Array]:
        """By output, memory that it may take as the plan does not read it at all."""
        bound: dict[int, Array] = {}
        read = set(self.inputs)
        for root, home in self._homes.items():
            out = self._plan.outputs[root]
            made = out >= len(self.inputs) and out not in runnable.over
            if made and home in spare and home not in read:
                bound.setdefault(out, spare[home])
        return bound


def call_program(run: Run, written: Sequence[int]) -> None:
    """Run a program; ``written`` are outputs in memory that has data in it."""
    assert run.runnable is not None
    arrays = list(run.arrays)
    apart = written if watched() else ()
    for i in apart:
        # Kernel by kernel: what is replaced must be whole until the last has run.
        arrays[i] = empty(arrays[i].size, run.plan.buffers[i].dtype)
    run_program(run.runnable.program, run.plan, run.backend, arrays)
    for i in apart:
        run.arrays[i][:] = arrays[i]
