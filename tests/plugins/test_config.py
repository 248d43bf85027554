"""The table of environment variables."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from uopc import config


def test_the_table_is_small_and_complete() -> None:
    names = [variable.name for variable in config.VARIABLES]
    assert len(names) <= 12
    assert len(set(names)) == len(names)
    for variable in config.VARIABLES:
        assert variable.name.startswith("UOPC_")
        assert variable.doc


def test_defaults() -> None:
    for variable in config.VARIABLES:
        assert config.get(variable.name) == variable.default
    assert config.get("UOPC_OPT") == 1


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("UOPC_BACKEND", "c", "c"),
        ("UOPC_OPT", " 2 ", 2),
        ("UOPC_CHECK", "3", 3),
        ("UOPC_DEBUG", "4", 4),
        ("UOPC_CC", "zig cc -target x", "zig cc -target x"),
        ("UOPC_PLUGINS_STRICT", "1", True),
        ("UOPC_PLUGINS_STRICT", "0", False),
        ("UOPC_PLUGINS_BLOCK", "erf, viewer,,", ("erf", "viewer")),
        ("UOPC_OPT", "", 1),
        ("UOPC_OPT", "  ", 1),
    ],
)
def test_the_environment_is_read(
    monkeypatch: pytest.MonkeyPatch, name: str, text: str, value: object
) -> None:
    monkeypatch.setenv(name, text)
    assert config.get(name) == value


@pytest.mark.parametrize(
    ("name", "text", "allowed"),
    [
        ("UOPC_OPT", "3", "an integer from 0 to 2"),
        ("UOPC_OPT", "-1", "an integer from 0 to 2"),
        ("UOPC_CHECK", "yes", "an integer from 0 to 3"),
        ("UOPC_DEBUG", "1.0", "an integer from 0 to 4"),
        ("UOPC_PLUGINS_STRICT", "true", "0 or 1"),
    ],
)
def test_a_bad_value_is_explained(
    monkeypatch: pytest.MonkeyPatch, name: str, text: str, allowed: str
) -> None:
    monkeypatch.setenv(name, text)
    for _ in range(2):
        with pytest.raises(ValueError, match="expected") as caught:
            config.get(name)
        assert str(caught.value) == f"{name}={text!r}: expected {allowed}"


def test_an_unknown_name_is_an_error() -> None:
    with pytest.raises(KeyError, match="UOPC_OTP"):
        config.get("UOPC_OTP")
    with pytest.raises(KeyError, match="UOPC_OTP"), config.overriding(UOPC_OTP=1):
        raise AssertionError("not reached")


def test_overrides_win_nest_and_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UOPC_OPT", "2")
    with config.overriding(UOPC_OPT=0, UOPC_DEBUG=3):
        assert config.get("UOPC_OPT") == 0
        with config.overriding(UOPC_OPT="1"):
            assert config.get("UOPC_OPT") == 1
            assert config.get("UOPC_DEBUG") == 3
        assert config.get("UOPC_OPT") == 0
    assert config.get("UOPC_OPT") == 2
    assert config.get("UOPC_DEBUG") == 0


def test_overrides_end_when_the_body_raises() -> None:
    with pytest.raises(ZeroDivisionError), config.overriding(UOPC_OPT=0):
        raise ZeroDivisionError
    assert config.get("UOPC_OPT") == 1


def test_overrides_take_values_of_each_kind(tmp_path: Path) -> None:
    with config.overriding(
        UOPC_PLUGINS_STRICT=True,
        UOPC_PLUGINS_BLOCK=("a", "b"),
        UOPC_DUMP=tmp_path,
        UOPC_BACKEND="",
    ):
        assert config.get("UOPC_PLUGINS_STRICT") is True
        assert config.get("UOPC_PLUGINS_BLOCK") == ("a", "b")
        assert config.get("UOPC_DUMP") == str(tmp_path)
        assert config.get("UOPC_BACKEND") == ""
        with config.overriding(UOPC_PLUGINS_BLOCK=()):
            assert config.get("UOPC_PLUGINS_BLOCK") == ()


def test_overrides_are_checked() -> None:
    with pytest.raises(ValueError, match="UOPC_OPT='7'"), config.overriding(UOPC_OPT=7):
        raise AssertionError("not reached")


def test_other_threads_do_not_see_overrides() -> None:
    seen: list[int] = []
    with config.overriding(UOPC_OPT=0):
        thread = threading.Thread(target=lambda: seen.append(config.get("UOPC_OPT")))
        thread.start()
        thread.join()
    assert seen == [1]
