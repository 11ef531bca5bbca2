"""The order in which workers take files, so that all of them end at about the same time."""

import pytest

FIRST = [f"integration/test_{name}" for name in ("schedule_goes_on", "roll", "approve", "embedded")]
# These mostly wait: one worker runs them while the others need the processor.
FIRST += ["pulsar_rebalancer/carry_out/", "pulsar_rebalancer/pulsar/", "pulsar_rebalancer_airflow/operators/"]
FIRST += [f"pulsar/test_{name}" for name in ("forced_balance", "strategies", "by_hand", "extensible")]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def place(item: pytest.Item) -> int:
        return next((number for number, part in enumerate(FIRST) if part in item.path.as_posix()), len(FIRST))

    items.sort(key=place)
