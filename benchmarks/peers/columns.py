"""What is compared: a framework, and the settings it runs with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

_ADD = "print(({a} + {a}).tolist())"


@dataclass(frozen=True)
class Column:
    """One column of the table.

    Attributes:
        name: what the command line calls it.
        title: what the table calls it.
        module: the module of `peers` that has the workloads.
        importing: the statement whose time is the time of importing it.
        hello: a program that adds two vectors and prints the sum.
        without: kinds of workloads that it has not.
        needs: a feature of the processor without which it would repeat another column.
        environment: variables that are set before the process starts. ``{cc}`` stands
            for the C compiler's command.
    """

    name: str
    title: str
    module: str
    importing: str
    hello: str
    without: frozenset[str] = frozenset()
    needs: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def package(self) -> str:
        """What has to be installed."""
        return self.importing.split()[1].strip(",")

    @property
    def is_own(self) -> bool:
        """Whether it is uopc, and no peer."""
        return self.module == "peers.in_uopc"


def _uopc(name: str, title: str, needs: str = "", **environment: str) -> Column:
    importing = "from uopc.tensor import Tensor"
    hello = f"{importing}; {_ADD.format(a='Tensor([1., 2., 3.])')}"
    module = "peers.in_uopc"
    return Column(
        name,
        title,
        module,
        importing,
        hello,
        needs=needs,
        environment=environment,
    )


COLUMNS: tuple[Column, ...] = (
    Column(
        "numpy",
        "numpy",
        "peers.in_numpy",
        "import numpy",
        f"import numpy; {_ADD.format(a='numpy.array([1., 2., 3.])')}",
        without=frozenset({"cnn", "gpt", "deep", "attention", "scatter"}),
    ),
    Column(
        "torch",
        "torch eager",
        "peers.in_torch",
        "import torch",
        f"import torch; {_ADD.format(a='torch.tensor([1., 2., 3.])')}",
    ),
    Column(
        "torch_compiled",
        "torch.compile",
        "peers.in_torch",
        "import torch",
        "",
        without=frozenset({"deep", "import", "hello"}),
        environment={"PEERS_COMPILED": "1"},
    ),
    Column(
        "jax",
        "jax.jit",
        "peers.in_jax",
        "import jax, jax.numpy",
        "import jax, jax.numpy; a = jax.numpy.array([1., 2., 3.]); "
        "print(jax.jit(lambda a, b: a + b)(a, a).tolist())",
        environment={"JAX_PLATFORMS": "cpu"},
    ),
    _uopc("uopc", "uopc"),
    _uopc("uopc_avx2", "uopc, AVX2", needs="avx512f", UOPC_CC="{cc} -march=x86-64-v3"),
    _uopc("uopc_plain", "uopc, UOPC_OPT=0", UOPC_OPT="0"),
)

BY_NAME = {c.name: c for c in COLUMNS}
ALONE = ("numpy", "uopc")
WITH_PEERS = ("numpy", "torch", "torch_compiled", "jax", "uopc", "uopc_avx2")
