"""Places that Python code can see, and whether what is in them has changed.

Nothing here runs code of users: not `__eq__`, which may compare by anything, nor
`__getattr__`, `__len__` or `__dict__`, which may be what they made of it.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from itertools import chain, compress, count
from operator import call, is_, is_not
from typing import Any

import numpy as np

from uopc.runtime.jitting.kinds import kind_name

_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_NUMPY = (t for t in np.sctypeDict.values() if issubclass(t, (np.number, np.bool_)))
# By identity, since the class of a class may say how it is hashed.
_SCALARS = {id(t) for t in (*_PLAIN, *_NUMPY)}
EMPTY: Any = object()  # in a place that has no value yet
_MOST_PAIRS = 1000
# So many containers that are read by one function are worth watches of their own.
_MANY = 8
# An object that refers to more, as a long list does, is asked for its places only.
MOST_REFERENTS = 3000


def is_scalar(x: Any) -> bool:
    """Whether something is a number, a string, or None, and not of a user's class."""
    return id(type(x)) in _SCALARS


def same(a: Any, b: Any) -> bool:
    """Whether two things are one, or equal numbers, strings, or tuples of such.

    Numbers are equal if no code could tell them apart: not 0.0 and -0.0, nor 1 and
    True; NaN is equal to NaN.
    """
    if a is b:
        return True
    pairs = [(a, b)]
    for _ in range(_MOST_PAIRS):
        a, b = pairs.pop()
        kind = type(a)
        if a is not b:
            if kind is not type(b):
                return False
            if kind is tuple:
                if len(a) != len(b):
                    return False
                pairs += zip(a, b, strict=True)
            elif not is_scalar(a) or not _equal(kind, a, b):
                return False
        if not pairs:
            return True
    return False


def _equal(kind: type, a: Any, b: Any) -> bool:
    if issubclass(kind, np.generic):
        return bool(a.tobytes() == b.tobytes())
    if kind is float or kind is complex:
        return repr(a) == repr(b)
    return bool(a == b)


def difference(now: Any, was: Any) -> str:
    """How to say that something has changed."""
    while type(now) is tuple and type(was) is tuple and len(now) == len(was):
        pairs = zip(now, was, strict=True)
        now, was = next((p for p in pairs if not same(*p)), (None, None))
    if now is EMPTY or was is EMPTY:
        return "has no value now" if now is EMPTY else "has a value now"
    texts = _text(now), _text(was)
    if all(texts):
        return f"is {texts[0]} and was {texts[1]}"
    return f"is another {kind_name(type(now))}"


def _text(x: Any) -> str:
    """A scalar in Python's words; empty if that would be too long."""
    kind = type(x)
    if not is_scalar(x) or (kind is int and x.bit_length() > 120):
        return ""
    text = repr(x[:40] if kind in (str, bytes) else x)
    return text if len(text) < 40 else ""


def other(name: str, now: Any, was: Any) -> str:
    """How to say that there is something else in a place."""
    return f"{name} {difference(now, was)}"


def number(name: str, now: Any, was: Any) -> str:
    """How to say that a container has more or fewer items."""
    return f"{name} has {now} items and had {was}"


def key_text(key: Any) -> str:
    """What to call an item of a dict."""
    return f"[{_text(key) or kind_name(type(key))}]"


class Watches:
    """Places that are read all at once, by C functions alone.

    Args:
        words: how to say that what is in the place of this name is another, of the
            name, what is there now, and what was.
        read: what reads each container; None if that differs.
        spread: whether a read gives all places of a container, and not one.
        equal: whether lists of what is found may be compared, which is quickest: of
            strings, numbers of items, code and classes, of which nothing else that can
            be there is the equal.
    """

    def __init__(
        self,
        words: Callable[[str, Any, Any], str],
        read: Callable[[Any], Any] | None = None,
        spread: bool = False,
        equal: bool = False,
    ) -> None:
        self._words, self._read, self._spread = words, read, spread
        self._equal = equal
        self._names: list[str] = []
        self._reads: list[Callable[[Any], Any]] = []
        self._containers: list[Any] = []
        self._found: list[Any] = []
        # By container: the number of its first place.
        self._starts: list[int] = []

    def add(
        self,
        names: list[str],
        read: Callable[[Any], Any],
        container: Any,
        found: list[Any],
    ) -> None:
        """Watch places of a container in which ``found`` was read."""
        self._starts.append(len(self._found))
        self._names += names
        self._found += found
        self._reads.append(read)
        self._containers.append(container)

    def __len__(self) -> int:
        return len(self._containers)

    def join(self, others: Watches) -> None:
        """Watch the places of others as well."""
        self._starts += [len(self._found) + n for n in others._starts]
        self._names += others._names
        self._found += others._found
        self._reads += others._reads
        self._containers += others._containers

    def change(self) -> str:
        """The first place where something else is now, in words; empty if none is."""
        found, read = self._found, self._read
        try:
            if read is None:
                reads: Iterator[Any] = map(call, self._reads, self._containers)
            elif read is iter:
                reads = iter(self._containers)
            else:
                reads = map(read, self._containers)
            now = list(chain.from_iterable(reads) if self._spread else reads)
            if self._equal and now == found:
                return ""
        except Exception:
            return self._gone()
        if len(now) != len(found):
            return self._gone()
        if all(map(is_, now, found)):
            return ""
        for i in compress(count(), map(is_not, now, found)):
            if not same(now[i], found[i]):
                return self._words(self._names[i], now[i], found[i])
            found[i] = now[i]  # to find it at once next time
        return ""

    def _gone(self) -> str:
        """What cannot be read any more."""
        ends = [*self._starts[1:], len(self._found)]
        every = zip(self._reads, self._containers, self._starts, ends, strict=True)
        for read, container, start, end in every:
            try:
                now = tuple(read(container)) if self._spread else (read(container),)
            except Exception:
                now = ()
            if len(now) != end - start:
                return f"{self._names[start]} is gone"
        return "something that it sees changes at this moment"


class Referents:
    """Watches of what objects refer to, which the garbage collector tells at once.

    As long as that is what it was, the watches need not be asked. They are what counts:
    the order and number of referents is the collector's affair.
    """

    def __init__(self) -> None:
        self._objects: dict[int, Any] = {}
        self._all: list[Any] = []
        self._found: list[Any] = []
        self.watches: list[Watches] = []

    def has(self, item: Any, found: list[Any]) -> bool:
        """Whether a change of what was found in an object would change these."""
        referents = gc.get_referents(item)
        if len(referents) > MOST_REFERENTS:
            return False
        if not set(map(id, found)) <= set(map(id, referents)):
            return False
        self._objects.setdefault(id(item), item)
        return True

    def start(self, watches: list[Watches]) -> None:
        """Begin, with these watches."""
        self.watches = watches
        self._found = gc.get_referents(*self._objects.values())
        self._all = list(self._objects.values())

    def change(self) -> str:
        """The first place where something else is now, in words; empty if none is."""
        now, found = gc.get_referents(*self._all), self._found
        if len(now) == len(found) and all(map(is_, now, found)):
            return ""
        for watches in self.watches:
            if words := watches.change():
                return words
        self._found = now  # they are equal
        return ""


def _through(read: Callable[[Any], Any], reference: Callable[[], Any]) -> Any:
    """What is read of an object that may be gone."""
    item = reference()
    if item is None:
        raise LookupError
    return read(item)


class Collection:
    """All watches, by how they are read and compared.

    Args:
        weak: the identities of objects that are not kept alive, if that can be.
    """

    def __init__(self, weak: Iterable[int] = ()) -> None:
        self.containers = 0
        self._weak = set(weak)
        self._referents = Referents()
        self._all: dict[tuple[Any, ...], Watches] = {}

    def add(
        self,
        names: list[str],
        read: Callable[[Any], Any],
        container: Any,
        found: list[Any],
        spread: bool = False,
        equal: bool = False,
        refers: bool = False,
        words: Callable[[str, Any, Any], str] = other,
    ) -> None:
        """Watch places of a container, as `Watches` does.

        ``refers``: the container itself refers to what was found, and nothing is
        missing.
        """
        if id(container) in self._weak:
            with suppress(TypeError):
                container, refers = weakref.ref(container), False
                read = partial(_through, read)
        refers = refers and self._referents.has(container, found)
        key = (words, spread, equal, refers, read)
        if key not in self._all:
            self._all[key] = Watches(words, read, spread, equal)
        self._all[key].add(names, read, container, found)
        self.containers += words is number

    def all(self) -> list[Watches | Referents]:
        """What to ask; first the numbers of items, on which the others rely."""
        found: dict[tuple[Any, ...], Watches] = {}
        for (words, spread, equal, refers, read), watches in self._all.items():
            common = read if len(watches) >= _MANY else None
            key = (words is not number, words, spread, equal, refers, common)
            found.setdefault(key, Watches(words, common, spread, equal)).join(watches)
        keys = sorted(found, key=lambda key: key[0])
        self._referents.start([found[key] for key in keys if key[4]])
        plain = [found[key] for key in keys if not key[4]]
        return [*plain, self._referents] if self._referents.watches else [*plain]
