"""A load that changes by a script: bundles of different size, and bursts of some of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

SPREAD = 0.7
"""Standard deviation of the logarithm of the bundles' sizes."""

FIRST_BURST, BURST_EVERY, BURST_MINUTES = 2, 10, 4
BURSTING, TIMES = 4, 4.0
"""How many bundles burst, and how many times their rate they carry then."""


def scripted(bundles: int, minutes: int, rate: float, seed: int) -> npt.NDArray[np.float64]:
    """Return msg/s of each bundle, a row for each minute; a longer script begins as a shorter one.

    Args:
        rate: of all bundles together without bursts, msg/s.
    """
    random = np.random.default_rng(seed)
    sizes = random.lognormal(0.0, SPREAD, bundles)
    factors = np.ones((minutes, bundles))
    for begin in range(FIRST_BURST, minutes, BURST_EVERY):
        factors[begin : begin + BURST_MINUTES, random.choice(bundles, BURSTING, replace=False)] = TIMES
    rates: npt.NDArray[np.float64] = rate * sizes / sizes.sum() * factors
    return rates
