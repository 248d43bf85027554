"""Pickles of graphs: the same nodes here, an equal graph elsewhere, of any depth."""

from __future__ import annotations

import copy
import gc
import io
import multiprocessing
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np
import pytest

from uopc.dtype import DTYPES, boolean, f32, f64, i32, void
from uopc.plugins import PluginHost, hookimpl, use
from uopc.tensor import Tensor
from uopc.testing import random_graph
from uopc.uir import to_uir
from uopc.uop import BUILTIN_OPS, OpDef, Ops, UOp, elementwise, live_nodes

DEPTH = 20_000
HALVE = OpDef("halve", "elementwise", 1, elementwise(("float",)), "x / 2.")


def chain(depth: int, slot: int = 0) -> list[UOp]:
    """All nodes of a chain, children first."""
    x = UOp.buffer(4, f32, slot)
    nodes = [x]
    for _ in range(depth):
        nodes.append(nodes[-1] + x)
    return nodes


def leaves_and_arguments() -> list[UOp]:
    """Every kind of argument, and constants that are equal to Python but not here."""
    x = UOp.buffer(6, f32, 3, 2)
    grid = x.reshape((2, 3))
    r = UOp(Ops.RANGE, (), (1, 4, i32))
    local = UOp.buffer(1, f64, 0, space="local")
    store = UOp(Ops.STORE, (local, UOp.const(0, i32), UOp.const(0.1, f64)))
    return [
        *(UOp.const(v, f32) for v in (0.0, -0.0, 1.0, float("nan"), float("-inf"))),
        UOp.const(1, i32), UOp.const(True, boolean), UOp.const(1.0, f64),
        UOp.param(0, f64), UOp.param(1, i32, (2, 0)), UOp(Ops.IOTA, (), 7),
        grid.permute((1, 0)), grid.shrink([(0, 1), (1, 3)]), UOp(Ops.FLIP, (x,), (0,)),
        grid.reduce(Ops.MAX, 2), UOp.stack([x, x]), grid.index(1), x.detach(),
        x.cast(i32), UOp(Ops.SINK, (UOp(Ops.END, (r, store)),), "k"),
    ]  # fmt: skip


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_node_comes_back_as_itself(protocol: int) -> None:
    for u in leaves_and_arguments():
        assert pickle.loads(pickle.dumps(u, protocol)) is u


@pytest.mark.parametrize("seed", range(20))
def test_random_graphs_come_back_as_themselves(seed: int) -> None:
    roots = random_graph(seed).roots
    assert pickle.loads(pickle.dumps(roots)) == roots
    assert pickle._loads(pickle._dumps(roots)) == roots  # the ones in Python


def test_a_freed_graph_is_made_anew() -> None:
    gc.collect()  # what other tests left in cycles
    before = live_nodes()
    u = chain(50, slot=31)[-1]
    text, data = to_uir(u), pickle.dumps(u)
    del u
    assert live_nodes() == before  # neither the pickle nor the pickler holds nodes
    assert to_uir(pickle.loads(data)) == text
    assert live_nodes() == before


def test_another_process_gets_an_equal_graph() -> None:
    roots = leaves_and_arguments()
    program = """
import pickle, sys
roots = pickle.loads(sys.stdin.buffer.read())
from uopc.uir import to_uir
sys.stdout.write("\\n\\n".join(map(to_uir, roots)))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], input=pickle.dumps(roots), capture_output=True
    )
    assert done.stdout.decode() == "\n\n".join(map(to_uir, roots)), done.stderr


def test_depth_does_not_matter() -> None:
    nodes = chain(DEPTH)
    data = pickle.dumps(nodes[-1])
    assert pickle.loads(data) is nodes[-1]
    assert len(data) < 16 * DEPTH
    assert pickle._loads(pickle._dumps(nodes[-1])) is nodes[-1]


@pytest.mark.parametrize("order", ["children first", "root first", "in steps"])
def test_many_roots_that_share_nodes_take_no_more_than_their_nodes(order: str) -> None:
    nodes = chain(3000)
    roots = {
        "children first": nodes,
        "root first": nodes[::-1],
        "in steps": [nodes[k * 1213 % len(nodes)] for k in range(len(nodes))],
    }[order]
    data = pickle.dumps(roots)
    assert pickle.loads(data) == roots
    assert len(data) < 100 * len(nodes)


def test_sixty_levels_of_sharing_are_sixty_nodes() -> None:
    u = UOp.buffer(4, f32, 0)
    for _ in range(60):
        u = u + u
    data = pickle.dumps({"u": u, "half": u.src[0], "again": [u, u]})
    assert len(data) < 2000
    assert pickle.loads(data)["again"] == [u, u]


def test_picklers_at_work_at_once_do_not_mix_up_what_they_wrote() -> None:
    nodes = chain(40)
    files = [io.BytesIO(), io.BytesIO()]
    picklers = [pickle.Pickler(f) for f in files]
    for u in nodes[10:]:
        for p in picklers:
            p.dump(u)
    for f in files:
        f.seek(0)
        unpickler = pickle.Unpickler(f)
        assert [unpickler.load() for _ in nodes[10:]] == nodes[10:]


def test_what_one_pickler_wrote_in_many_steps_another_writes_in_one() -> None:
    nodes = chain(2000)
    first = pickle.Pickler(io.BytesIO())
    for u in nodes:
        first.dump(u)
    data = pickle.dumps(nodes[-1])  # not as 2000 parts, one inside the other
    assert pickle.loads(data) is nodes[-1]
    assert len(data) < 20 * len(nodes)


def test_a_pickler_whose_memo_is_cleared_starts_afresh() -> None:
    nodes = chain(20)
    file = io.BytesIO()
    pickler = pickle.Pickler(file)
    sizes = []
    for u in (nodes[-1], nodes[-2]):
        start = file.tell()
        pickler.dump(u)
        pickler.clear_memo()
        sizes.append(file.tell() - start)
        assert pickle.loads(file.getvalue()[start:]) is u
    assert sizes[1] > sizes[0] - 20


def test_threads_pickle_one_graph_at_once() -> None:
    nodes = chain(300)
    wrong: list[int] = []

    def work(k: int) -> None:
        for i in range(20):
            roots = nodes[(k + i) % 7 :: 7]
            if pickle.loads(pickle.dumps(roots)) != roots:
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert not wrong


def test_copies_are_the_node_itself() -> None:
    u = chain(DEPTH)[-1]
    assert copy.copy(u) is u
    assert copy.deepcopy(u) is u
    assert copy.deepcopy({"a": [u]}) == {"a": [u]}


def test_ops_and_dtypes_are_pickled_by_name() -> None:
    for op in BUILTIN_OPS:
        assert pickle.loads(pickle.dumps(op)) is op
        assert copy.deepcopy(op) is copy.copy(op) is op
    for dtype in (*DTYPES.values(), void):
        assert pickle.loads(pickle.dumps(dtype)) is dtype


@pytest.fixture
def halve() -> Iterator[PluginHost]:
    """A host with a plugin that has an op of its own."""

    @hookimpl
    def uopc_register_ops(register: object) -> None:
        register(HALVE)  # type: ignore[operator]

    host = PluginHost()
    host.register_module(SimpleNamespace(uopc_register_ops=uopc_register_ops), "halves")
    return host


def test_a_plugin_s_op_is_found_by_name(halve: PluginHost) -> None:
    u = UOp(HALVE, (UOp.buffer(4, f32, 0),)) + 1.0
    with use(halve):
        data = pickle.dumps(u)
        assert pickle.loads(data) is u
    with pytest.raises(pickle.UnpicklingError, match="'halve', which no plugin here"):
        pickle.loads(data)


def test_an_op_that_nobody_registers_is_not_pickled() -> None:
    u = UOp(HALVE, (UOp.buffer(4, f32, 0),))
    with pytest.raises(
        pickle.PicklingError, match="no plugin registers the op 'halve'"
    ):
        pickle.dumps(u)
    assert copy.deepcopy(u) is u
    assert pickle.loads(pickle.dumps(u.src[0])) is u.src[0]  # no harm done


def load(data: bytes, answers: multiprocessing.Queue[str]) -> None:
    """What another process, a fork too, has to say to a pickle."""
    try:
        answers.put(repr(pickle.loads(data)))
    except pickle.UnpicklingError as error:
        answers.put(f"error: {error}")


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_live_buffers_are_pickled_for_their_own_process_only(method: str) -> None:
    node = (Tensor(np.arange(4, dtype=np.float32)) * 2).uop
    data = pickle.dumps([node, node.src[0]])
    assert pickle.loads(data) == [node, node.src[0]]
    context = multiprocessing.get_context(method)
    answers = context.Queue()
    child = context.Process(target=load, args=(data, answers))
    child.start()
    answer = answers.get(timeout=60)
    child.join(60)
    assert "error: the graph reads live buffers of another process" in answer
