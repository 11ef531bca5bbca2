import re

from pulsar_rebalancer_airflow.dag_factory import daily_schedule


def test_the_minute_is_fixed_by_the_name_and_spread_over_four_hours() -> None:
    schedules = [daily_schedule(f"cluster-{number}") for number in range(200)]

    assert schedules == [daily_schedule(f"cluster-{number}") for number in range(200)]
    minutes = [int(hour) * 60 + int(minute) for minute, hour in (s.split()[:2] for s in schedules)]
    assert all(re.fullmatch(r"[1-5]?\d [1-4] \* \* \*", schedule) for schedule in schedules)
    assert len({minute // 30 for minute in minutes}) == 8
