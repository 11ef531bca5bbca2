"""Sums that are the same under every release of Python."""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def one_by_one(figures: Iterable[float]) -> float:
    """Return the sum of figures that are added one after the other, as Java does.

    Since 3.12 Python's own `sum` makes up for what rounding loses: the last digit is another one then, it decides a
    tie, and the same run would give another plan.
    """
    return reduce(add, figures, 0.0)
