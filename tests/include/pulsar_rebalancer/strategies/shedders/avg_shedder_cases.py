"""The cases of Pulsar's AvgShedderTest as histories; maxUnloadPercentage 0.5."""

from tests.vectors.histories import History, Step
from tests.vectors.rows import broker, bundle

from pulsar_rebalancer.config.settings import Settings

BUNDLES = 11
"""Equal ones of 900 msg/s on each source."""

FITTING = 10
"""So many are half the difference of 18,000 msg/s; there the order of a map chooses them, here their names do."""


def case(
    name: str, brokers: dict[str, tuple[float, float]], moves: dict[str, str], runs: int, settings: Settings
) -> History:
    """Runs of a cluster that does not change: all count, and the last one fires.

    Args:
        name: of the case.
        brokers: CPU in percent and messages per second.
        moves: the pairs that fire: destination by source.
        runs: how many.
        settings: the thresholds.
    """
    rows = [broker(each, cpu, rate=rate) for each, (cpu, rate) in brokers.items()]
    held = {source: [f"t/{source}/0x{n:08x}_0x{n + 1:08x}" for n in range(BUNDLES)] for source in moves}
    bundles = [bundle(source, each, rate=900) for source, names in held.items() for each in names]
    paired = [*moves, *moves.values()]
    high = min(abs(brokers[a][0] - brokers[b][0]) for a, b in moves.items()) >= settings.high_threshold
    expected: list[dict[str, object]] = [
        {
            "unload": {},
            "dest": {},
            "high": dict.fromkeys(paired, run) if high else {},
            "low": dict.fromkeys(paired, run),
        }
        for run in range(1, runs)
    ]
    unload = {source: names[:FITTING] for source, names in held.items()}
    fired = {each: moves[source] for source, names in unload.items() for each in names}
    expected.append({"unload": unload, "dest": fired, "high": {}, "low": {}})
    return History(f"upstream-{name}", "upstream", settings, [Step(rows, bundles, each) for each in expected])


CASES = [
    case(
        "hit-high-threshold",
        {"b1": (80, 20000), "b2": (30, 2000), "b3": (50, 10000)},
        {"b1": "b2"},
        2,
        Settings(high_threshold=40, hit_count_high=2),
    ),
    # The scores differ by a little more than 20, because percentages are 32-bit floats.
    case(
        "hit-low-threshold",
        {"b1": (60, 20000), "b2": (40, 2000), "b3": (50, 10000)},
        {"b1": "b2"},
        6,
        Settings(low_threshold=20, hit_count_low=6),
    ),
    # The inner pair differs by exactly 40.
    case(
        "several-pairs",
        {"b1": (80, 20000), "b2": (30, 2000), "b3": (75, 20000), "b4": (35, 2000)},
        {"b1": "b2", "b3": "b4"},
        2,
        Settings(high_threshold=40, hit_count_high=2),
    ),
]
