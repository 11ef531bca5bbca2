"""Report whether the other brokers could take over a broker's load, from the newest run's files; no broker is queried.

`python -m pulsar_rebalancer.decide.rolls.check_removal BROKER --root ROOT --cluster NAME --max-age-seconds N` prints
one sentence, which also names the broker that is cheapest to remove, and exits with a code: 0 FITS; 1 DOES NOT FIT; 2
UNKNOWN: there is no recent usable sample, or the sample does not contain the broker.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pulsar_rebalancer.decide.rolls.removal import removal, sample_of
from pulsar_rebalancer.errors import PlanError, RebalancerError
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.newest_sample import newest_sample
from pulsar_rebalancer.storage.command_options import parser_of, positive
from pulsar_rebalancer.storage.layout import ClusterStorage
from pulsar_rebalancer.texts import number_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pulsar_rebalancer.decide.planning_sample import PlanningSample
    from pulsar_rebalancer.decide.rolls.removal import Removal

FITS, DOES_NOT_FIT, UNKNOWN = 0, 1, 2
_NAMES = {FITS: "FITS", DOES_NOT_FIT: "DOES NOT FIT", UNKNOWN: "UNKNOWN"}

_TRIED = 20
"""Maximum number of brokers that are checked as candidates for removal, those with the least traffic first."""


def check(
    storage: ClusterStorage, broker: str, now: datetime, max_age_seconds: float, limit: float | None = None
) -> tuple[int, str]:
    """Return the exit code and the sentence about a broker.

    Args:
        limit: highest score that the other brokers may reach, in percent; None for `overloaded_threshold`.
    """
    try:
        sample = sample_of(newest_sample(storage, now, max_age_seconds))
        found = removal(sample, broker, limit)
    except PlanError as error:
        return DOES_NOT_FIT if error.reason is Reason.LAST_BROKER else UNKNOWN, error.message
    except RebalancerError as error:
        return UNKNOWN, error.message
    return (FITS if found.fits else DOES_NOT_FIT), f"{_said(found)}; {_cheapest(sample, limit)}"


def _said(found: Removal) -> str:
    if found.fits:
        moved = f"the {number_of(found.bundles, 'bundle')} of {found.broker} find room on the other brokers"
        return f"{moved}, whose highest score would be {found.highest:.1f} (limit {found.limit:g})"
    why = ", ".join(f"{reason} x{count}" for reason, count in found.stay.most_common())
    left = f"{found.stay.total()} of {number_of(found.bundles, 'bundle')} of {found.broker}"
    return f"{left} would find no room on the other brokers (limit {found.limit:g}): {why}"


def _cheapest(sample: PlanningSample, limit: float | None) -> str:
    """Return text that names the removable broker with the least traffic."""
    traffic = sample.traffic
    tried = sorted(traffic, key=lambda name: (traffic[name], name))[:_TRIED]
    for name in tried:
        try:
            if removal(sample, name, limit).fits:
                return f"cheapest to remove is {name}, with {traffic[name] / 1e6:.1f} MB/s"
        except PlanError:
            continue  # it cannot be judged
    return f"none of the {number_of(len(tried), 'broker')} with the least traffic can be removed"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the sentence, and return the exit code."""
    parser = parser_of("pulsar_rebalancer.decide.rolls.check_removal", __doc__)
    parser.add_argument("broker", help="brokerId, host:port")
    parser.add_argument("--limit", type=positive, help="highest score of the others, percent (overloaded_threshold)")
    given = parser.parse_args(arguments)
    storage = ClusterStorage(given.root, given.cluster)
    try:
        code, said = check(storage, given.broker, datetime.now(UTC), given.max_age_seconds, given.limit)
    except (OSError, ValueError) as error:
        code, said = UNKNOWN, f"the root cannot be read: {type(error).__name__}"
    print(f"{_NAMES[code]} - cluster {given.cluster}: {said}")
    return code


if __name__ == "__main__":
    sys.exit(main())
