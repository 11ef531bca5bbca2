"""Sums that are the same in every release of Python."""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def one_by_one(figures: Iterable[float]) -> float:
    """Return the sum of the figures, added one after the other as Java does.

    Since Python 3.12, `sum` compensates for rounding errors. A different last digit can decide a tie, so the same run
    would lead to another plan.
    """
    return reduce(add, figures, 0.0)
