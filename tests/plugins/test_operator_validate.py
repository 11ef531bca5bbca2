from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException
from tests.airflow_context import context
from tests.airflow_runs import CLUSTER

from pulsar_rebalancer.clusters import ClusterEntry
from pulsar_rebalancer.reasons import Effect
from pulsar_rebalancer.run import Validation
from pulsar_rebalancer.settings import Settings
from pulsar_rebalancer.storage import Folder
from pulsar_rebalancer_airflow.operators import CollectOperator, ValidateOperator

if TYPE_CHECKING:
    from tests.airflow_context import MemoryState

    from pulsar_rebalancer.simulation.serve import Running
    from pulsar_rebalancer.storage import ClusterStorage


def collected(storage: ClusterStorage, state: MemoryState) -> Folder:
    given = {"connection": "pulsar_test"}
    entry = ClusterEntry(name=CLUSTER, given=given, settings=Settings.model_validate(given))
    operator = CollectOperator(task_id="collect", entry=entry, root=storage.root)
    return Folder(operator.execute(context(CLUSTER, state)))


def validate(run: Folder, state: MemoryState) -> tuple[dict[str, dict[str, int]] | None, Any, str]:
    given: Any = context(CLUSTER, state)
    try:
        return ValidateOperator(task_id="validate", run=run.uri).execute(given), given["ti"].pushed, ""
    except AirflowFailException as error:
        return None, given["ti"].pushed, str(error)


def test_counts_what_was_found(served: Running, storage: ClusterStorage, state: MemoryState) -> None:
    broker = served.cluster.active_brokers()[1]
    served.cluster.faults.add("nan_usage", broker)
    run = collected(storage, state)

    counts, _, _ = validate(run, state)

    assert counts is not None
    assert sum(counts[Effect.QUARANTINE.value].values()) == 1
    assert set(Validation.read(run).quarantined) == {broker}


def test_a_block_ends_the_run_and_says_why(served: Running, storage: ClusterStorage, state: MemoryState) -> None:
    for broker in served.cluster.active_brokers()[1:]:
        served.cluster.faults.add("error_500", broker)
    run = collected(storage, state)

    counts, pushed, said = validate(run, state)

    assert counts is None
    assert pushed["findings"][Effect.BLOCK.value]
    assert "nothing was decided" in said
    assert f"{run.uri}/validation.json" in said
    assert len(said.splitlines()) <= 12
