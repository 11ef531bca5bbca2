"""Record: commit the new state exactly once, before the gate and independently of the gate's verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulsar_rebalancer.errors import PlanError
from pulsar_rebalancer.reasons import Effect, Reason
from pulsar_rebalancer.run.plan import Summary, read_state, verify
from pulsar_rebalancer.run.request import Validation
from pulsar_rebalancer.state.backup import keep_copy
from pulsar_rebalancer.state.counting import commit
from pulsar_rebalancer.state.state_documents import DecisionState
from pulsar_rebalancer_airflow.failures import final_unless_passing
from pulsar_rebalancer_airflow.locations import run_folder, storage_of
from pulsar_rebalancer_airflow.operators.bases import RunOperator

if TYPE_CHECKING:
    from airflow.sdk import Context


class RecordOperator(RunOperator):
    """Store the state that results from a plan. The task's XCom is the list of split batches.

    A retry does not store a state twice: a plan whose id is already in the store is skipped. A plan that is based on an
    earlier state is refused without a retry. The copy under the storage root is written after the store; a retry writes
    it again.
    """

    def execute(self, context: Context) -> list[int]:
        """Commit the state.

        Returns:
            `[0]`, the number of the only batch, if the plan splits bundles; otherwise an empty list, so no split task
            starts.

        Raises:
            AirflowFailException: `stale_plan`, `plan_changed`, `foreign_run`, `blocked` (a person marked a failed
                validation as successful), or the plan or the stored state cannot be read.
        """
        with final_unless_passing(context):
            run = run_folder(context, self.cluster, self.run)
            summary = Summary.read(run)
            actions = verify(run, summary)
            blocking = Validation.read(run).reasons(Effect.BLOCK)
            if blocking:
                raise PlanError(Reason.BLOCKED, f"validation stopped this run: {', '.join(blocking)}")
            store = self._store(context)
            stored = store.get(DecisionState)
            document = commit(stored, read_state(run).model_copy(update={"plan_hash": summary.hash}))
            if document is None:
                self.log.info("Plan %s is recorded already, as number %d", stored.plan_id, stored.seq)
                document = stored
            else:
                store.put(document)
                self.log.info("Recorded plan %s as number %d (%s)", document.plan_id, document.seq, summary.counting)
            keep_copy(storage_of(self.cluster), document)
        return [0] if actions.splits else []
