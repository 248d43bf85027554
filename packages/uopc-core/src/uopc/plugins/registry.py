"""What plugins register: plain dicts, which the compiler reads."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import argparse

    from uopc.uop import OpDef, UOp

    VjpRule: TypeAlias = Callable[[UOp, UOp], tuple[UOp | None, ...]]
    JvpRule: TypeAlias = Callable[[UOp, tuple[UOp | None, ...]], UOp | None]
    BatchingRule: TypeAlias = Callable[[UOp, tuple[UOp, ...], tuple[bool, ...]], UOp]

RESERVED_COMMANDS = ("plugins", "doctor", "show", "graph")


class DuplicateError(ValueError):
    """Two plugins own one key, and neither said `override=True`."""


@dataclass(frozen=True)
class Command:
    """A subcommand of `uopc` that a plugin added."""

    name: str
    help: str
    configure: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


# Where rules of plugins are applied, and what a rule is there. It is known by what it
# has, so that this file needs nothing of uopc.simplify.
REWRITE_STAGES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "simplify": (
        "a uopc.simplify.Rule",
        lambda rule: hasattr(rule, "pattern") and callable(getattr(rule, "build", 0)),
    ),
    "schedule": ("a function (sink, target) of steps", callable),
}


@dataclass
class Registry:
    """Everything the loaded plugins registered.

    `owners` maps (kind, key) to the name of the plugin that registered it, where kind
    is the name of one of the dicts; the key of a rewrite is the rule itself. `stamp`
    tells one set of plugins and versions from another; a cache of compiled things
    should have it in its key.
    """

    ops: dict[str, OpDef] = field(default_factory=dict)
    vjps: dict[OpDef, VjpRule] = field(default_factory=dict)
    jvps: dict[OpDef, JvpRule] = field(default_factory=dict)
    batchings: dict[OpDef, BatchingRule] = field(default_factory=dict)
    rewrites: dict[str, list[Any]] = field(default_factory=dict)
    backends: dict[str, Callable[[], Any]] = field(default_factory=dict)
    spellings: dict[tuple[str, OpDef], Any] = field(default_factory=dict)
    commands: dict[str, Command] = field(default_factory=dict)
    owners: dict[tuple[str, Hashable], str] = field(default_factory=dict)
    stamp: str = ""


class Staging:
    """What one plugin registers, kept apart until all its hooks have succeeded."""

    def __init__(self, registry: Registry, plugin: str) -> None:
        self._registry = registry
        self._plugin = plugin
        self._staged = Registry()
        self._open = True

    def add_op(self, opdef: OpDef, *, override: bool = False) -> None:
        """Stage an op; the `register` of `uopc_register_ops`."""
        self._claim("ops", _op_name(opdef), override)
        self._staged.ops[opdef.name] = opdef

    def add_vjp(self, op: OpDef, rule: VjpRule, *, override: bool = False) -> None:
        """Stage a gradient rule; the `register` of `uopc_register_vjps`."""
        self._claim_rule("vjps", "a gradient rule", op, rule, override)
        self._staged.vjps[op] = rule

    def add_jvp(self, op: OpDef, rule: JvpRule, *, override: bool = False) -> None:
        """Stage a forward-mode rule; the `register` of `uopc_register_jvps`."""
        self._claim_rule("jvps", "a forward-mode rule", op, rule, override)
        self._staged.jvps[op] = rule

    def add_batching(
        self, op: OpDef, rule: BatchingRule, *, override: bool = False
    ) -> None:
        """Stage a batching rule; the `register` of `uopc_register_batchings`."""
        self._claim_rule("batchings", "a batching rule", op, rule, override)
        self._staged.batchings[op] = rule

    def add_rewrites(self, stage: str, rules: Iterable[Any]) -> None:
        """Stage rewrite rules; the `register` of `uopc_register_rewrites`."""
        _need_name(stage, "a stage")
        if stage not in REWRITE_STAGES:
            known = ", ".join(REWRITE_STAGES)
            raise ValueError(f"there is no rewrite stage {stage!r}; stages: {known}")
        self._need_open()
        rules = list(rules)
        what, is_one = REWRITE_STAGES[stage]
        for rule in rules:
            if not is_one(rule):
                raise TypeError(f"expected {what}, got {rule!r}")
            self._staged.owners["rewrites", rule] = self._plugin
        self._staged.rewrites.setdefault(stage, []).extend(rules)

    def add_backend(
        self, name: str, factory: Callable[[], Any], *, override: bool = False
    ) -> None:
        """Stage a backend; the `register` of `uopc_register_backends`."""
        _need_name(name, "a backend")
        _need_callable(factory, "a backend's factory")
        self._claim("backends", name, override)
        self._staged.backends[name] = factory

    def add_spelling(
        self, backend: str, op: OpDef, spelling: Any, *, override: bool = False
    ) -> None:
        """Stage a spelling; the `register` of `uopc_register_spellings`."""
        _need_name(backend, "a backend")
        _op_name(op)
        self._claim("spellings", (backend, op), override)
        self._staged.spellings[backend, op] = spelling

    def add(
        self,
        name: str,
        help: str,
        configure: Callable[[argparse.ArgumentParser], None],
        run: Callable[[argparse.Namespace], int],
    ) -> None:
        """Stage a command; this object is the `cli` of `uopc_register_commands`."""
        _need_name(name, "a command")
        _need_callable(configure, "a command's configure")
        _need_callable(run, "a command's run")
        if name in RESERVED_COMMANDS:
            raise DuplicateError(f"command {name!r} is one of uopc's own")
        self._claim("commands", name, override=False)
        self._staged.commands[name] = Command(name, help, configure, run)

    def close(self) -> None:
        """Refuse further registrations: the hooks have returned."""
        self._open = False

    def counts(self) -> dict[str, int]:
        """How many of each kind are staged; kinds with none are left out."""
        staged = self._staged
        counts = {
            "ops": len(staged.ops),
            "vjps": len(staged.vjps),
            "jvps": len(staged.jvps),
            "batchings": len(staged.batchings),
            "rewrites": sum(map(len, staged.rewrites.values())),
            "backends": len(staged.backends),
            "spellings": len(staged.spellings),
            "commands": len(staged.commands),
        }
        return {kind: count for kind, count in counts.items() if count}

    def commit(self) -> None:
        """Move what is staged into the registry; nothing in here can fail."""
        registry, staged = self._registry, self._staged
        registry.ops.update(staged.ops)
        registry.vjps.update(staged.vjps)
        registry.jvps.update(staged.jvps)
        registry.batchings.update(staged.batchings)
        for stage, rules in staged.rewrites.items():
            registry.rewrites.setdefault(stage, []).extend(rules)
        registry.backends.update(staged.backends)
        registry.spellings.update(staged.spellings)
        registry.commands.update(staged.commands)
        registry.owners.update(staged.owners)

    def _claim_rule(
        self, kind: str, what: str, op: OpDef, rule: object, override: bool
    ) -> None:
        _op_name(op)
        _need_callable(rule, what)
        self._claim(kind, op, override)

    def _claim(self, kind: str, key: Hashable, override: bool) -> None:
        """Note this plugin as the owner of a key, or say who owns it already."""
        self._need_open()
        claim = (kind, key)
        owner = self._staged.owners.get(claim) or self._registry.owners.get(claim)
        if owner is not None and not override:
            what = f"{kind.removesuffix('s')} {_key_text(key)}"
            hint = "" if kind == "commands" else "; pass override=True to replace it"
            if owner == self._plugin:
                raise DuplicateError(f"plugin {owner!r} registers {what} twice{hint}")
            raise DuplicateError(
                f"{what} is registered by plugin {owner!r} and by plugin "
                f"{self._plugin!r}{hint}"
            )
        self._staged.owners[claim] = self._plugin

    def _need_open(self) -> None:
        if not self._open:
            raise RuntimeError(
                f"plugin {self._plugin!r} registers after its hook has returned"
            )


def _op_name(op: OpDef) -> str:
    # An op is known by what it has, so that this file needs nothing of uopc.uop.
    name = getattr(op, "name", None)
    if not isinstance(name, str) or not name:
        raise TypeError(f"expected an OpDef, got {op!r}")
    if not (name.isascii() and name.isidentifier()):
        raise ValueError(
            f"the name of an op has letters, digits and underscores, so that the text "
            f"form can write it; got {name!r}"
        )
    return name


def _need_name(name: object, what: str) -> None:
    if not isinstance(name, str) or not name:
        raise TypeError(f"the name of {what} is a non-empty string, not {name!r}")


def _need_callable(value: object, what: str) -> None:
    if not callable(value):
        raise TypeError(f"{what} is callable, not {value!r}")


def _key_text(key: Hashable) -> str:
    if isinstance(key, tuple):
        return " of ".join(_key_text(part) for part in reversed(key))
    return repr(getattr(key, "name", key))
