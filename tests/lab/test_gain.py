import pytest
from lab.families.contestants import AVG, GAIN
from lab.families.family_results import FamilyResults, Values
from lab.gain.goals import verdicts


def results(
    moves: float, ranges: float, hottest: float, name: str = "f", disturbed: float = 79.0
) -> dict[str, FamilyResults]:
    """AvgShedder with 99 moves, as much disturbed load, a range of 10 and a hottest broker at 70, and GainShedder."""
    usual: Values = {"moves_per_day": 99.0, "disturbed_per_day": 99.0, "range_mean": 10.0, "hottest_p99": 70.0}
    own: Values = {"moves_per_day": moves, "disturbed_per_day": disturbed, "range_mean": ranges, "hottest_p99": hottest}
    return {name: FamilyResults(name, "", (1,), {AVG: [usual], GAIN: [own]})}


@pytest.mark.parametrize(
    ("given", "missed"),
    [
        (results(49.0, 9.9, 70.5), []),
        (results(49.2, 9.9, 70.5), [0]),
        (results(59.0, 9.9, 70.5, "sealed_power_law"), []),
        (results(59.2, 9.9, 70.5, "sealed_power_law"), [0]),
        (results(49.0, 10.0, 70.5), [1]),
        (results(49.0, 9.9, 70.6), [2]),
        (results(49.0, 9.9, 70.5, disturbed=79.2), [3]),
    ],
)
def test_goals(given: dict[str, FamilyResults], missed: list[int]) -> None:
    found = verdicts({**results(0.0, 1.0, 0.0, "other"), **given}, AVG)
    assert [number for number, verdict in enumerate(found) if verdict.missed] == missed
    assert all(set(verdict.missed) <= given.keys() for verdict in found)
