"""A plan that was compiled before: found without lowering, printing or compiling."""

import importlib.util
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from uopc.backend_c import CProgram, cache, fingerprint, plans
from uopc.backend_c.backend import spellings
from uopc.config import overriding
from uopc.kernelize import Plan, make_plan
from uopc.plugins import PluginHost, use
from uopc.runtime import backend_named, new_buffer
from uopc.uop import UOp

pytestmark = pytest.mark.usefixtures("own_cache")

Script = Callable[[str], list[str]]
Environment = Callable[..., dict[str, str]]

PROGRAM = """
import dataclasses, json
import numpy as np
from uopc.backend_c.cache import stats
from uopc.tensor import Tensor

x = Tensor(np.arange(12, dtype=np.float32).reshape(3, 4) / 7)
hidden = (x @ x.T).relu() + 1
value = [(hidden.softmax(1).log() @ x).sum().item(), hidden.numpy().tolist()]
print(json.dumps([value, dataclasses.asdict(stats)]))
"""


@pytest.fixture
def known_code(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Plans are remembered, whatever the checks and the age of the files."""
    monkeypatch.setattr(plans, "code_fingerprint", lambda: "this code")
    with overriding(UOPC_CHECK=1):
        yield


def planned(u: UOp) -> Plan:
    backend = backend_named("c")
    return make_plan([u], None, backend.supports, backend.name)[0]


def leaf(n: int = 4) -> UOp:
    return new_buffer(np.arange(n, dtype=np.float32))


def ran(plan: Plan) -> list[float]:
    """The output of a program made now, on the input that `leaf` has."""
    arrays = [np.zeros(b.size, b.dtype.numpy) for b in plan.buffers]
    arrays[0][:] = np.arange(arrays[0].size)
    CProgram(plan, spellings())(arrays)
    return [float(x) for x in arrays[plan.outputs[0]]]


# Two processes


def test_a_second_process_only_loads(script: Script, environment: Environment):
    def run(check: int = 1) -> tuple[Any, dict[str, int]]:
        done = subprocess.run(
            script(PROGRAM),
            env=environment(UOPC_CHECK=str(check), UOPC_BACKEND="c"),
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        value, counts = json.loads(done.stdout)
        return value, counts

    cold, first = run()
    assert first["kernels"] > 3
    assert first["plan_hits"] == 0
    programs = first["misses"] - 1  # one says for what the compiler makes code
    assert first["compiler_runs"] == first["misses"] > 2
    warm, second = run()
    assert warm == cold
    assert (second["compiler_runs"], second["kernels"]) == (0, 0)
    assert second["plan_hits"] == programs
    # What is to be checked is lowered, but the compiler is not needed.
    checked, third = run(check=2)
    assert checked == cold
    assert (third["compiler_runs"], third["plan_hits"]) == (0, 0)
    assert third["kernels"] == first["kernels"]


# The record


@pytest.mark.usefixtures("known_code")
def test_the_source_of_a_program_that_was_found():
    plan = planned(leaf() * 2.0 + 1.0)
    first = CProgram(plan, spellings())
    again = CProgram(plan, spellings())
    assert (cache.stats.plan_hits, cache.stats.kernels) == (1, 1)
    with overriding(UOPC_OPT=0):  # not the level that it was made at
        assert again.source == first.source


@pytest.mark.usefixtures("known_code")
@pytest.mark.parametrize(
    "settings",
    [{"UOPC_DEBUG": 1}, {"UOPC_DUMP": "x"}, {"UOPC_CHECK": 2}, {"UOPC_CHECK": 3}],
)
def test_whoever_wants_to_see_the_passes_gets_them(settings: dict[str, Any]):
    plan = planned(leaf() * 2.0)
    assert plans.plan_key(plan, 1)
    with overriding(**settings):
        assert plans.plan_key(plan, 1) is None


@pytest.mark.usefixtures("known_code")
def test_the_key_covers_all_that_matters(monkeypatch: pytest.MonkeyPatch):
    x, y = leaf(), leaf()
    graphs = [x * 2.0, x * 3.0, x + y, (x + y) * x, leaf(5) * 2.0, x * 2.0 + y * 0.0]
    keys = [plans.plan_key(planned(u), 1) for u in graphs]
    plan = planned(x * 2.0)
    assert plans.plan_key(plan, 1) == keys[0]
    keys += [plans.plan_key(plan, opt) for opt in (0, 2)]
    named = plan.kernels[0]
    for change in ({"name": "other"}, {"out": 0}, {"args": (1,)}):
        other = SimpleNamespace(**{**vars(named), **change})
        keys.append(plans.plan_key(Plan((other,), plan.buffers, plan.outputs), 1))  # type: ignore[arg-type]
    monkeypatch.setenv("UOPC_CC", "gcc -g0")
    keys.append(plans.plan_key(plan, 1))
    monkeypatch.setattr(plans, "code_fingerprint", lambda: "other code")
    keys.append(plans.plan_key(plan, 1))
    assert None not in keys
    assert len(set(keys)) == len(keys)


@pytest.mark.usefixtures("known_code")
@pytest.mark.parametrize(
    "damage", ["cut", "empty", "garbage", "another's", "writable", "no object"]
)
def test_a_damaged_record_is_not_believed(damage: str, own_cache: Path):
    plan, other = planned(leaf() * 2.0), planned(leaf() * 5.0)
    assert ran(other) == [0.0, 5.0, 10.0, 15.0]
    (foreign,) = own_cache.glob("*.plan")
    assert ran(plan) == [0.0, 2.0, 4.0, 6.0]
    (record,) = set(own_cache.glob("*.plan")) - {foreign}
    good = record.read_bytes()
    if damage == "writable":
        record.chmod(0o622)
    elif damage == "no object":
        (own_cache / f"{good.split()[2].decode()}.so").unlink()
    else:
        texts = {
            "cut": good[:100],
            "empty": b"",
            "garbage": os.urandom(len(good)),
            "another's": foreign.read_bytes(),
        }
        record.write_bytes(texts[damage])
    cache.stats.reset()
    assert ran(plan) == [0.0, 2.0, 4.0, 6.0]
    assert (cache.stats.plan_hits, cache.stats.kernels) == (0, 1)
    assert record.read_bytes() == good
    assert ran(plan) == [0.0, 2.0, 4.0, 6.0]
    assert (cache.stats.plan_hits, cache.stats.kernels) == (1, 1)


# The code behind it

PLUGIN = """
from uopc.plugins import hookimpl
import {helper}

@hookimpl
def uopc_register_commands(cli):
    {body}
"""


class Installed:
    """A plugin in a file, as an entry point of a distribution."""

    def __init__(self, folder: Path, body: str = "pass", version: str = "1") -> None:
        name = f"plugin_of_{folder.parent.name}".replace("-", "_")
        self.helper = folder / f"helper_{name}.py"
        self.helper.touch()
        self.file = folder / name / "__init__.py"
        self.file.parent.mkdir(exist_ok=True)
        self.file.write_text(PLUGIN.format(helper=self.helper.stem, body=body))
        self.name = name
        self.dist = SimpleNamespace(name="dist", version=version)

    def load(self) -> object:
        spec = importlib.util.spec_from_file_location(self.name, self.file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to import from, of files that are older than this process."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(fingerprint, "_started", lambda: float("inf"))
    return folder


def code(*points: Any) -> str | None:
    with use(PluginHost(points)):
        return fingerprint.code_fingerprint()


def test_a_plugin_that_changes_is_another(site: Path):
    before = code(Installed(site))
    assert before
    assert code(Installed(site)) == before
    found = {before, code(), code(Installed(site, version="2"))}
    found.add(code(Installed(site, "return None")))
    Installed(site).helper.write_text("TEXT = 'changed'\n")
    found.add(code(Installed(site)))
    data = site / Installed(site).name / "later.py"
    data.write_text("# imported only when it is needed\n")
    found.add(code(Installed(site)))
    assert None not in found
    assert len(found) == 6


def test_uopc_that_changes_is_another(site: Path, monkeypatch: pytest.MonkeyPatch):
    (site / "rules.py").write_text("x = 1\n")
    monkeypatch.setattr(fingerprint, "_uopc_folders", lambda: [str(site)])
    before = code()
    (site / "rules.py").write_text("x = 2\n")
    assert None not in (before, code())
    assert before != code()


def test_code_that_cannot_be_told_apart_has_no_fingerprint(
    site: Path, monkeypatch: pytest.MonkeyPatch
):
    assert code(Installed(site, version="")) is None
    in_process = PluginHost(())
    in_process.register_module(SimpleNamespace(), "an object")
    with use(in_process):
        assert fingerprint.code_fingerprint() is None
    broken = Installed(site)
    (broken.file.parent / "unused.py").write_text("def\n")
    assert code(broken) is None
    (broken.file.parent / "unused.py").unlink()
    assert code(broken)
    monkeypatch.setattr(fingerprint, "MAX_FILES", 1)
    assert code(broken) is None


def test_files_that_changed_under_the_process_have_no_fingerprint(
    site: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.undo()
    monkeypatch.setattr(fingerprint, "_uopc_folders", lambda: [str(site)])
    (site / "new.py").touch()
    os.utime(site / "new.py", (0, 0))  # which does not make it any older
    assert code() is None


def test_whoever_observes_the_passes_sees_them(site: Path):
    observer = Installed(site)
    text = observer.file.read_text()
    text += "\n@hookimpl\ndef uopc_after_pass(name):\n    pass\n"
    observer.file.write_text(text)
    assert code(observer) is None
