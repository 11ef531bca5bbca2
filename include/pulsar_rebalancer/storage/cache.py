"""A cache of limited size for the contents of files that no longer change."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import Generic, TypeVar

_Value = TypeVar("_Value")


class Cache(Generic[_Value]):
    """A cache that drops the least recently used values when the sum of all weights exceeds its limit."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._values: OrderedDict[str, tuple[_Value, int]] = OrderedDict()
        self._lock = Lock()  # the API server answers in several threads
        self.weight = 0

    def get(self, key: str) -> _Value | None:
        """Return the value for a key; None if it is not in the cache."""
        with self._lock:
            if key not in self._values:
                return None
            self._values.move_to_end(key)
            return self._values[key][0]

    def put(self, key: str, value: _Value, weight: int = 1) -> _Value:
        """Store a value under a key, and return the value."""
        with self._lock:
            self.weight += weight - self._values.pop(key, (value, 0))[1]
            self._values[key] = (value, weight)
            while self.weight > self._limit and len(self._values) > 1:
                self.weight -= self._values.popitem(last=False)[1][1]
        return value
