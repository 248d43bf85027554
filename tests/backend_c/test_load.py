"""Opening shared objects and calling what is in them."""

import ctypes
from pathlib import Path

import pytest

from uopc.backend_c import cache, load

pytestmark = pytest.mark.usefixtures("own_cache")

SOURCE = "void f(void **p) { ((int *)p[0])[0] += 7; }\n"


def test_closing_twice_is_fine():
    library = load.load(cache.build(SOURCE, 1))
    function = library.function("f")
    assert (function.argtypes, function.restype) == ((ctypes.c_void_p,), None)
    library.close()
    library.close()
    with pytest.raises(load.LoadError, match="is closed"):
        library.function("f")


def test_closing_unloads():
    made = cache.build(SOURCE, 1)
    maps = Path("/proc/self/maps")
    with load.load(made):
        assert made.name in maps.read_text()
    assert made.name not in maps.read_text()


def test_a_missing_function_is_named():
    with (
        load.load(cache.build(SOURCE, 1)) as library,
        pytest.raises(load.LoadError, match="has no function 'g'"),
    ):
        library.function("g")


def test_what_is_no_library_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    Path("odd.so").write_text("odd")
    with pytest.raises(load.LoadError, match=r"cannot load /.*odd\.so"):
        load.load("odd.so")
    with pytest.raises(load.LoadError, match=r"none\.so"):
        load.load(tmp_path / "none.so")
