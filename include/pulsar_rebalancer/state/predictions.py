"""Predicted scores: the runs whose predictions have yet to be compared with measurements, and recent errors."""

from __future__ import annotations

from statistics import median

from pydantic import BaseModel, ConfigDict

LARGEST_ERROR = 3.0
"""Median error, in points, above which a warning is shown."""

KEPT, FEWEST = 50, 10
"""Maximum number of errors to store, and minimum number required to compute a median."""


class Predictions(BaseModel):
    """The predictions still to be compared, and the errors of earlier predictions.

    Attributes:
        awaited: plan_id of each run whose predictions are still to be compared.
        errors: measured minus predicted score of a broker after a run's moves, in points; newest last.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    awaited: tuple[str, ...] = ()
    errors: tuple[float, ...] = ()

    @property
    def median_error(self) -> float | None:
        """Return the median of the absolute errors, in points; None if there are too few errors."""
        return median(map(abs, self.errors)) if len(self.errors) >= FEWEST else None
