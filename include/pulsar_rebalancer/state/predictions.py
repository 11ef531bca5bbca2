"""Predicted scores: the runs whose predictions have not been compared with measurements yet, and recent errors."""

from __future__ import annotations

from statistics import median

from pydantic import BaseModel, ConfigDict

LARGEST_ERROR = 3.0
"""Median error, in points, above which there is a warning."""

KEPT, FEWEST = 50, 10
"""Maximum number of stored errors, and minimum number from which a median is computed."""


class Predictions(BaseModel):
    """The predictions to compare, and the errors of earlier predictions.

    Attributes:
        awaited: plan_id of each run whose moves are to be compared.
        errors: measured minus predicted score of one broker after one run's moves, in points; the newest come last.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    awaited: tuple[str, ...] = ()
    errors: tuple[float, ...] = ()

    @property
    def median_error(self) -> float | None:
        """Return the median of the absolute errors, in points; None if there are too few errors."""
        return median(map(abs, self.errors)) if len(self.errors) >= FEWEST else None
