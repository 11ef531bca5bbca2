"""Sums of floats that are the same in every Python version."""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def one_by_one(figures: Iterable[float]) -> float:
    """Return the sum of the figures, added one after the other, as in Java.

    Since Python 3.12, `sum` compensates for rounding errors. The last digit of a sum can decide between equal
    candidates, so the plan would depend on the Python version.
    """
    return reduce(add, figures, 0.0)
