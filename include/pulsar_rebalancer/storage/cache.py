"""What is kept of files that do not change any more, within a bound."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import Generic, TypeVar

_Value = TypeVar("_Value")


class Cache(Generic[_Value]):
    """Values by key; once they weigh more than a limit, those that were not asked for longest go.

    Args:
        limit: of the sum of weights.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._found: OrderedDict[str, tuple[_Value, int]] = OrderedDict()
        self._lock = Lock()  # the web server answers in several threads
        self.weight = 0

    def get(self, key: str) -> _Value | None:
        """Return a value; None when it is not known, or not any more."""
        with self._lock:
            if key not in self._found:
                return None
            self._found.move_to_end(key)
            return self._found[key][0]

    def put(self, key: str, value: _Value, weight: int = 1) -> _Value:
        """Keep a value, and return it."""
        with self._lock:
            self.weight += weight - self._found.pop(key, (value, 0))[1]
            self._found[key] = (value, weight)
            while self.weight > self._limit and len(self._found) > 1:
                self.weight -= self._found.popitem(last=False)[1][1]
        return value
