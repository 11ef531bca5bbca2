"""Collect a sample of the cluster, and validate it with Great Expectations before any decision."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from pulsar_rebalancer.carry_out.gate import require_second_person
from pulsar_rebalancer.collect.collector import EarlierData, RunTrigger, Sample, collect_sample, write_sample
from pulsar_rebalancer.config.clusters_file import RunParams, parse_params
from pulsar_rebalancer.config.field_types import Mode
from pulsar_rebalancer.errors import PlanError
from pulsar_rebalancer.orders.in_force import all_holds, orders_sentence
from pulsar_rebalancer.orders.manual_plans import Drains, HandedOverPlan, Question
from pulsar_rebalancer.orders.order import Control, JudgedRun, OrdersInForce
from pulsar_rebalancer.orders.roll_document import Roll
from pulsar_rebalancer.pulsar import PulsarAdmin
from pulsar_rebalancer.reasons import Effect, Reason
from pulsar_rebalancer.run.findings import explain_validation
from pulsar_rebalancer.run.request import RunRequest, Validation
from pulsar_rebalancer.run.snapshot import StateBefore
from pulsar_rebalancer.state import DecisionState, MovesState
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer.strategies.shedders.registry import resolve
from pulsar_rebalancer_airflow.hooks import PulsarAdminHook
from pulsar_rebalancer_airflow.operators.bases import ClusterOperator, requesting_user
from pulsar_rebalancer_airflow.options import fail_unless_temporary, run_folder
from pulsar_rebalancer_airflow.state_store import StateStore
from pulsar_rebalancer_airflow.suites import ValidationLink, page_address, validation_page

if TYPE_CHECKING:
    from airflow.sdk import Context


_ANY_THRESHOLDS = {"low_threshold": "0", "high_threshold": "1000"}
"""Placeholders until the brokers' thresholds are known: no setting of the clusters file or form contradicts them."""


class CollectOperator(ClusterOperator):
    """Write a run's input under the storage root. The task's XCom is the address of the run's folder.

    A retry writes a new snapshot to a new folder. The stored state and, as far as possible, the run's parameters are
    checked before any request is sent to the brokers.
    """

    only_shows = False
    """True if the run only shows a manual plan."""

    def execute(self, context: Context) -> str:
        """Collect one snapshot.

        Raises:
            AirflowSkipException: the mode is `off`.
            AirflowFailException: the parameters or the connection are invalid, the state is lost, or the
                brokers refuse the credentials.
            AdminError: no broker answered. This is retried.
        """
        with fail_unless_temporary(context):
            params = self._run_params(context)
            # `collect_sample` resolves again with the live brokers' settings; refuse mistakes that show without them.
            asked = resolve(self.entry.given, _ANY_THRESHOLDS, params)
            if asked.settings.mode is Mode.OFF:
                raise AirflowSkipException(f"cluster {self.entry.name}: mode is off, so no request was sent [mode_off]")
            storage, store = self.storage, self._state_store(context)
            store.write_missing_documents()
            orders = store.orders(context["dag_run"].start_date)
            roll = orders.get(Roll)
            before = StateBefore(
                decision=store.get(DecisionState),
                moves=store.get(MovesState),
                control=orders.get(Control).without_ended_orders(datetime.now(UTC)),
                drains=Drains(brokers=orders.get(Drains).brokers),
                roll=roll if roll.is_active else None,
                handed_over=self._find_handover(store, params.plan, context["dag_run"].run_id) if params.plan else None,
            )
            now = datetime.now(UTC)
            gc.freeze()  # keeps the garbage collector from scanning Airflow's objects every few hundred answers
            run_id, by = context["dag_run"].run_id, requesting_user(context)
            trigger = RunTrigger(now=now, airflow_run_id=run_id, run_params=params, requested_by=by)
            # Runs that only show a plan may take place next to a rebalancing run, which is the only writer.
            earlier = EarlierData(storage.state, before, stores_load_data=not self.only_shows)
            collected = asyncio.run(self._collect(trigger, earlier))
            run = storage.new_run_folder(now)
            request = _add_orders(collected.request, orders, before.decision.plan_id)
            request = request.model_copy(update={"dry_run": self.only_shows})
            write_sample(replace(collected, request=request), run)
        self.log.info("Collected %s", run.uri)
        return run.uri

    def _run_params(self, context: Context) -> RunParams:
        return parse_params(context["params"])

    def _find_handover(self, store: StateStore, identity: str, airflow_run_id: str) -> HandedOverPlan:
        """Return the plan that this run was started to carry out.

        Raises:
            PlanError: `other_plan` if the plan was not handed over to this run; else anyone who starts a run
                could choose the plan. `plan_expired` if the gate has opened for another plan since the approved
                plan was made. `same_person` if the mode has changed to `auto` since one person made and
                handed over a plan that needs two.
            StateError: `state_lost`.
        """
        handed = store.handed_over_plan(identity, airflow_run_id)
        if handed is None:
            raise PlanError(Reason.OTHER_PLAN, f"plan {identity[:16]} was not submitted to this run")
        if not handed.approved:
            require_second_person(self.entry.settings, handed.plan.by, handed.by, asks_second_person=True)
        elif store.get(Question).gate_opened_since(handed):
            raise PlanError(Reason.PLAN_EXPIRED, f"another plan has passed the gate since {handed.plan.at:%H:%M:%S %Z}")
        return handed

    async def _collect(self, trigger: RunTrigger, history: EarlierData) -> Sample:
        settings = self.entry.settings
        connection = PulsarAdminHook(settings.connection).get_connection_settings()
        async with PulsarAdmin(connection) as admin:
            return await collect_sample(admin, self.entry, trigger, history)


def _add_orders(request: RunRequest, orders: OrdersInForce, previous_plan_id: str) -> RunRequest:
    settings, now = request.resolved.settings, request.collected_at
    closed = all_holds(settings, orders, now, JudgedRun(now, previous_plan_id))
    in_force = orders_sentence(settings, closed, replace(orders, setting_origins=request.resolved.origins), now)
    return request.model_copy(update={"closed": closed[0].reason if closed else None, "in_force": in_force})


FINDINGS_KEY = "findings"
"""XCom key of the findings, for people and other tasks. The key is missing if there are no findings."""

_MEANS = {
    Effect.BLOCK: "Validation stopped the run, so no plan was made.",
    Effect.HOLD: "The run decides but moves nothing.",
    Effect.QUARANTINE: "The brokers or bundles in these findings are left out.",
    Effect.WARN: "The run continues unchanged.",
}


class ValidateOperator(BaseOperator):
    """Validate a run's snapshot. The task's XCom is the number of findings by effect and reason.

    The findings are in the log and in the XCom `findings`; the link *Validation result* shows them on a page.
    A retry with the same snapshot would give the same result, so a blocked run is not retried.
    """

    template_fields: Sequence[str] = ("run",)
    operator_extra_links = (ValidationLink(),)

    def __init__(self, *, cluster: str, run: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.cluster = cluster
        self.run = run

    def execute(self, context: Context) -> dict[str, dict[str, int]]:
        """Validate the snapshot.

        Raises AirflowFailException if a finding blocks the run, with the result's location and the remedy.
        """
        # Great Expectations takes seconds to load, so it is imported only here.
        from pulsar_rebalancer_airflow.suites import validate

        with fail_unless_temporary(context):
            run = run_folder(context, self.cluster, self.run)
            validation = validate(run)
        counts = {str(effect): _counts_json(found) for effect in Effect if (found := validation.reason_counts(effect))}
        page = page_address(context["dag_run"].dag_id, context["dag_run"].run_id, run.name)
        if validation.findings:
            self._warn_of_findings(context, run, validation, page)
        self.log.info("Validated: %s; page: %s", counts or "no findings", page)
        return counts

    def _warn_of_findings(self, context: Context, run: StoragePath, validation: Validation, page: str) -> None:
        report, result = explain_validation(validation), (run / "validation.json").uri
        gravest = report.reasons[0].effect
        document = {"cluster": self.cluster, "effect": gravest.value, **report.document()}
        context["ti"].xcom_push(key=FINDINGS_KEY, value=document | {"result": result, "page": validation_page(run).uri})
        text = f"Cluster {self.cluster}: {_MEANS[gravest]}\n{report.text()}\nFull result: {result}; page: {page}"
        if gravest is Effect.BLOCK:
            raise AirflowFailException(text)
        self.log.warning("%s", text)


def _counts_json(counts: Mapping[Reason, int]) -> dict[str, int]:
    return {str(reason): count for reason, count in counts.items()}
