"""The order in which workers take files, so that all of them end at about the same time."""

import pytest

# Long files, and folders that mostly wait: one worker runs these while the others need the processor.
FIRST = [f"integration/test_{name}.py" for name in ("schedule_goes_on", "roll", "approve", "embedded")]
FIRST += [f"include/pulsar_rebalancer/{name}/" for name in ("carry_out", "pulsar")]
FIRST += ["plugins/pulsar_rebalancer_airflow/operators/"]
FIRST += [f"pulsar/test_{name}.py" for name in ("forced_balance", "strategies", "by_hand", "extensible")]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def place(item: pytest.Item) -> int:
        path = item.path.as_posix()
        return next((number for number, part in enumerate(FIRST) if f"/tests/{part}" in path), len(FIRST))

    items.sort(key=place)
