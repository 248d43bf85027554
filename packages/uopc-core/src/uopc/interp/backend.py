"""The backend that runs plans through the interpreter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from uopc.interp.evaluate import evaluate
from uopc.kernelize import Plan
from uopc.uop import OpDef, Ops, toposort

Array = np.ndarray[Any, Any]


class ReferenceBackend:
    """Runs every op that has a NumPy meaning."""

    name = "interp"
    priority = 0
    in_place = True

    def unavailable(self) -> str | None:
        """Why this backend cannot run here; it always can."""
        return None

    def supports(self, op: OpDef) -> bool:
        """Whether ``op`` runs as it is, or must be lowered to others."""
        return op.numpy is not None or op in (Ops.BUFFER, Ops.PARAM)

    def compile(self, plan: Plan) -> ReferenceProgram:
        """A program that runs ``plan``."""
        return ReferenceProgram(plan)


class ReferenceProgram:
    """A plan, interpreted kernel by kernel."""

    def __init__(self, plan: Plan) -> None:
        made = [k.out for k in plan.kernels]
        self._outputs = [i for i in made if plan.buffers[i].role == "output"]
        self._steps = []
        for k in plan.kernels:
            leaves = [u for u in toposort([k.ast]) if u.op is Ops.BUFFER]
            reads = [(u, k.args[u.arg.slot]) for u in leaves]
            self._steps.append((k.ast, reads, k.out))

    def __call__(self, arrays: Sequence[Array]) -> None:
        """Run on one flat array per plan buffer, writing the outputs.

        Outputs, of which some may be inputs as well, are written when all of them have
        been computed: an op that fails leaves everything as it was.
        """
        memory = list(arrays)
        for out in self._outputs:
            memory[out] = np.empty_like(arrays[out])
        for ast, reads, out in self._steps:
            data = {u: u.dtype.load(memory[i]) for u, i in reads}
            (value,) = evaluate([ast], data)
            memory[out][:] = ast.dtype.store(value.reshape(-1))
        for out in self._outputs:
            arrays[out][:] = memory[out]
