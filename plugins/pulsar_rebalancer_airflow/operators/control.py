"""Store an operator's order at once, then carry it out: stop a run; show, export, reset or restore the state."""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

from airflow.sdk.exceptions import AirflowRuntimeError
from pydantic import JsonValue

from pulsar_rebalancer.errors import SnapshotError, StateError
from pulsar_rebalancer.orders.in_force import EXPORT, RESET, RESTORE, SHOW, ControlRequest, parse_control_form
from pulsar_rebalancer.orders.manual_plans import HandedOverPlans, ShownPlans
from pulsar_rebalancer.orders.order import Control, GivenOrder, Order
from pulsar_rebalancer.orders.pause import without_used_skip_order
from pulsar_rebalancer.reasons import Reason, Trait
from pulsar_rebalancer.run.outcome import read_move_outcomes
from pulsar_rebalancer.run.plan import RUN_TIMEOUT, outcome_by_split, read_moves, read_plan_state, read_splits
from pulsar_rebalancer.run.request import RunRequest
from pulsar_rebalancer.run.snapshot import StateBefore
from pulsar_rebalancer.run.tables import MEANS, find_state_table
from pulsar_rebalancer.state import DecisionState, MovesState
from pulsar_rebalancer.storage.documents import MAX_CLOCK_SKEW, ClusterStorage, CommitMark, last_committed_run, time_of
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer_airflow.notifications import send_order_metrics
from pulsar_rebalancer_airflow.operators.bases import ClusterOperator, refuse_cleared_task, requesting_user
from pulsar_rebalancer_airflow.options import REBALANCE_DAG, fail_unless_temporary
from pulsar_rebalancer_airflow.state_store import StateStore

if TYPE_CHECKING:
    from airflow.sdk import Context

_log = logging.getLogger(__name__)

_STATE_CHANGE_FILE = re.compile(r"change-.+-re(?:set|store)\.json")


def state_summary(store: StateStore) -> dict[str, JsonValue]:
    """Return a summary of the documents `decision` and `moves`; of initial documents if they are lost.

    It has at most twenty brokers, most hits first, and twenty stored destinations.
    """
    decision, moves = store.peek(DecisionState), store.peek(MovesState)
    most = sorted(decision.hits.items(), key=lambda item: (-item[1].high, -item[1].low, item[0]))
    return {
        "seq": decision.seq,
        "plan_id": decision.plan_id,
        "counted_at": decision.counted_at.isoformat() if decision.counted_at else None,
        "strategy": decision.strategy,
        "means": decision.means,
        "brokers_with_hits": len(decision.hits),
        "most_hits": {broker: {"high": count.high, "low": count.low} for broker, count in most[:20]},
        "recently_unloaded": len(moves.unloads),
        "destinations_kept": {
            bundle: kept.destination for bundle, kept in sorted(moves.kept_destinations.items())[:20]
        },
    }


def export_state(store: StateStore, now: datetime) -> str:
    """Write the documents `decision` and `moves` to one file in the cluster's state folder, and return the file's name.

    Raises StateError `state_lost`.
    """
    file = store.storage.state / f"export-{now:%Y%m%dT%H%M%SZ}.json"
    file.write_json({model.KEY: store.get(model).model_dump(mode="json") for model in (DecisionState, MovesState)})
    _log.info("Exported to %s", file.uri)
    return file.name


def change_state(store: StateStore, action: str, order: Order, name: str) -> dict[str, str]:
    """Reset the state or restore it from a file, and replace all lost documents by initial ones.

    The state gets a new sequence number, so a plan in progress becomes stale and is not recorded.

    Args:
        action: `reset` or `restore`.
        order: the person who requested the change, and the reason.
        name: name of the export to restore; empty for the state of the last committed plan.

    Returns:
        Why documents were lost, by key.

    Raises:
        SnapshotError: there is nothing to restore, or it cannot be read.
    """
    lost, before = store.lost_documents(), max(_sequence_numbers(store))
    source, decision, moves = "", DecisionState(), MovesState()
    if action == "restore":
        source, decision, moves = _read_state_to_restore(store.storage, name)
    # No plan id: a plan recorded earlier must not be carried out after a restore.
    means = decision.means if find_state_table(store.storage.state, decision.means, MEANS) else ""
    state = decision.model_copy(update={"seq": before + 1, "plan_id": "", "means": means})
    details = lost_document_details(store, lost) | {"file": source, "seq_before": before, "seq_after": state.seq}
    # Noted first as begun, in case the task is killed before it notes the end.
    write_change(store.storage, action, order, details | {"done": False})
    store.put(state)
    store.put(_merged_history(store.peek(MovesState), moves, is_reset=action == "reset"))
    if HandedOverPlans.KEY in lost:  # a plan that was shown may have been carried out
        store.put(ShownPlans())
    store.replace_lost_documents()
    write_change(store.storage, action, order, details | {"done": True})
    return lost


def _sequence_numbers(store: StateStore) -> Iterator[int]:
    """Yield the sequence numbers of the stored state, the last committed plan, later runs and earlier changes."""
    document = store.raw(DecisionState.KEY)
    stored = document.get("seq") if isinstance(document, Mapping) else None
    yield stored if isinstance(stored, int) else 0
    for run in store.storage.latest_runs(datetime.now(UTC) + MAX_CLOCK_SKEW):
        if committed := CommitMark.read_or_none(run):
            yield committed.seq
            break
        with suppress(SnapshotError):  # it read the state, perhaps of a task that was killed before it left the mark
            yield StateBefore.read(run).decision.seq
    state = store.storage.state
    for name in filter(_STATE_CHANGE_FILE.fullmatch, state.entry_names()):
        with suppress(SnapshotError, KeyError, TypeError):
            yield int((state / name).read_json()["seq_after"])


def _read_state_to_restore(storage: ClusterStorage, name: str) -> tuple[str, DecisionState, MovesState]:
    """Return the name of the export, or of the run whose plan was committed last, and its documents."""
    if name:
        file = storage.state / name
        document = file.read_json()
        if not isinstance(document, Mapping) or set(document) != {DecisionState.KEY, MovesState.KEY}:
            raise SnapshotError(
                Reason.FILE_DAMAGED, f"{name} is not an export with the keys {DecisionState.KEY} and {MovesState.KEY}"
            )
        decision = DecisionState.parse(document[DecisionState.KEY], name)
        return name, decision, MovesState.parse(document[MovesState.KEY], name)
    run = last_committed_run(storage, datetime.now(UTC) + MAX_CLOCK_SKEW)
    if run is None:
        raise SnapshotError(Reason.FILE_MISSING, f"no run in {storage.runs.uri} has committed a state to restore")
    # Hits that may have led to moves must be earned again.
    return run.name, read_plan_state(run).with_hits_reset(), MovesState()


def _merged_history(stored_moves: MovesState, restored_moves: MovesState, *, is_reset: bool) -> MovesState:
    """Merge the restored and the stored history, so that the grace period of recently moved bundles continues.

    A reset drops the stored destinations, because operators reset the state after the leader has restarted and lost its
    destinations.
    """
    return MovesState(
        unloads=restored_moves.unloads | stored_moves.unloads,
        kept_destinations={} if is_reset else restored_moves.kept_destinations | stored_moves.kept_destinations,
        splits=restored_moves.splits | stored_moves.splits,
    )


def lost_document_details(store: StateStore, lost: Mapping[str, str]) -> dict[str, JsonValue]:
    """Return errors (`lost`) and JSON texts (`was`) of lost documents, by key, for `write_change`; empty if none."""
    texts: dict[str, JsonValue] = {key: json.dumps(store.raw(key), default=str) for key in lost}
    return {"lost": dict(lost), "was": texts} if lost else {}


def write_change(storage: ClusterStorage, action: str, order: Order, details: Mapping[str, JsonValue]) -> StoragePath:
    """Write `state/change-<time>-<action>.json`, and return its path.

    An earlier file for the same order is replaced.
    """
    file = storage.state / f"change-{order.at:%Y%m%dT%H%M%S.%fZ}-{action}.json"
    who_and_why = {"at": order.at.isoformat(), "action": action, "by": order.by, "reason": order.reason}
    file.write_json({**who_and_why, **details})
    return file


_SECONDS_BETWEEN_LOOKS = 1.0


class StopOutcome(NamedTuple):
    """The outcome of a stop.

    Attributes:
        finished_moves: reason code by bundle, for bundles that were in progress and have been completed.
        unfinished_bundles: bundles of the current wave that have no outcome. Those not yet started will not be started.
        not_begun_count: number of bundles that the run will not move or split, including later waves.
    """

    finished_moves: dict[str, Reason]
    unfinished_bundles: tuple[str, ...]
    not_begun_count: int


class RunInProgress(TypedDict):
    """The last recorded plan, its bundles in progress, and the number of its bundles without an outcome."""

    plan: str
    bundles: list[str]
    without_outcome: int


def find_last_run(store: StateStore) -> RunInProgress:
    """Return the last recorded plan, and its bundles that are in progress.

    Raises:
        StateError: `state_lost`.
        SnapshotError: one of the run's files cannot be read.
    """
    plan = store.get(DecisionState).plan_id
    run, begun = store.storage.run_folder(plan), _unfinished_bundles(store, plan)
    to_do = _pending_bundles(run) | begun if run else begun
    return RunInProgress(plan=plan, bundles=sorted(begun), without_outcome=len(to_do))


def wait_for_end(store: StateStore, run_in_progress: RunInProgress, timeout_s: float) -> StopOutcome:
    """Wait until no bundle is in progress, and return the outcome of the stop.

    The task that carries out the plan checks for a stop before each bundle. Until this task ends, it is unknown which
    bundles it had started.

    Args:
        store: the cluster's store, in which the stop is already stored.
        run_in_progress: the plan in progress when the stop was stored.
        timeout_s: maximum time to wait. Bundles that have no outcome by then are `unfinished_bundles`.
    """
    until, begun = time.monotonic() + timeout_s, set(run_in_progress["bundles"])
    left = begun & _unfinished_bundles(store, run_in_progress["plan"])
    while left and time.monotonic() < until:
        time.sleep(_SECONDS_BETWEEN_LOOKS)
        left &= _unfinished_bundles(store, run_in_progress["plan"])
    run = store.storage.run_folder(run_in_progress["plan"])
    ended = {bundle: reason for bundle, reason in _outcome_codes(run).items() if bundle in begun - left} if run else {}
    finished = {bundle: reason for bundle, reason in ended.items() if not reason.has(Trait.NOT_BEGUN)}
    return StopOutcome(finished, tuple(sorted(left)), run_in_progress["without_outcome"] - len(finished) - len(left))


def is_in_progress(storage: ClusterStorage, plan_id: str, now: datetime) -> bool:
    at, run = time_of(plan_id), storage.run_folder(plan_id)
    return at is not None and run is not None and now - at <= RUN_TIMEOUT and not (run / "outcome.json").exists()


def _pending_bundles(run: StoragePath) -> set[str]:
    """Return a plan's bundles without an outcome; empty once the run has ended."""
    if (run / "outcome.json").exists():
        return set()
    planned = {move.bundle for move in read_moves(run)} | {split.bundle for split in read_splits(run)}
    return planned - _outcome_codes(run).keys()


def _outcome_codes(run: StoragePath) -> dict[str, Reason]:
    moves = {bundle: outcome.reason for bundle, outcome in read_move_outcomes(run).items()}
    splits = {bundle: outcome.reason for bundle, outcome in outcome_by_split(run).items()}
    return dict(sorted((moves | splits).items()))


def _unfinished_bundles(store: StateStore, plan: str) -> set[str]:
    moves = store.get(MovesState)
    known = {bundle: (unload.plan_id, unload.outcome) for bundle, unload in moves.unloads.items()}
    known |= {bundle: (split.plan_id, split.outcome) for bundle, split in moves.splits.items()}
    return {bundle for bundle, (plan_id, outcome) in known.items() if plan_id == plan and not outcome}


class ControlInput(TypedDict, total=False):
    """Input of the *control* task.

    Attributes:
        lost: why the `control` document was lost before a pause replaced it, by key.
        found: the plan in progress at a stop or pause; missing if one of the run's files is unreadable.
        undecided: a run without a plan was in progress at the stop or pause.
    """

    lost: dict[str, str]
    found: RunInProgress
    undecided: bool


class OrderOperator(ClusterOperator):
    """Store an order in the `control` document, which only this task writes.

    The task does not wait for other runs, so a stop applies immediately, even if an earlier run of this DAG is still in
    progress. A retry would overrule newer orders, so there is none.
    """

    def execute(self, context: Context) -> ControlInput:
        """Store the order if the action requires an order.

        Raises:
            AirflowFailException: a field is invalid or missing, or a pause would end in the past or before the current
                pause does (`wrong_setting`, `contradiction`); the stored orders are lost, and the action is not a pause
                (`state_lost`); the run was cleared (`no_user`).
        """
        with fail_unless_temporary(context):
            store, ordered = self._state_store(context), ControlInput()
            if parse_control_form(context["params"]).form_action.stops_run:
                # Only runs that began before the order are sure to obey it.
                with suppress(AirflowRuntimeError):
                    ordered["undecided"] = self._has_undecided_run(context, store)
            request, order = form_and_order(context)
            if request.action in (RESET, RESTORE):
                _remove_used_skip_order(store)
            elif request.form_action.apply:
                ordered["lost"] = _store_order(store, request, order)
            if request.form_action.stops_run:
                with suppress(StateError, SnapshotError):  # the order is in force; the *control* task reports the error
                    ordered["found"] = find_last_run(store)
        send_order_metrics(context, self.entry.name, self.entry.settings)
        return ordered

    def _has_undecided_run(self, context: Context, store: StateStore) -> bool:
        ti, dag_id = context["ti"], f"{REBALANCE_DAG}{self.entry.name}"
        running = ti.get_dr_count(dag_id, states=["running"])
        last = self.storage.run_folder(store.last_plan_id()) if running else None
        try:
            recorded = [RunRequest.read(last).airflow_run_id] if last else []
        except SnapshotError:
            recorded = []
        return running > (ti.get_dr_count(dag_id, run_ids=recorded, states=["running"]) if recorded else 0)


def form_and_order(context: Context) -> tuple[ControlRequest, GivenOrder]:
    """Return the form and the order. Raises `wrong_setting`, `contradiction` or PlanError `no_user`."""
    request = parse_control_form(context["params"])
    if request.form_action.needs_reason:
        refuse_cleared_task(context)
    return request, GivenOrder(at=datetime.now(UTC), by=requesting_user(context), **dict(request))


def _store_order(store: StateStore, request: ControlRequest, order: GivenOrder) -> dict[str, str]:
    """Store an order in the `control` document; return why the document was lost, by key.

    Only a pause replaces a lost document, so that nothing is moved until operators have given all orders
    again; any other action raises `state_lost`.
    """
    lost, chosen = store.lost_documents((Control,)), request.form_action
    if not chosen.works_after_loss:
        store.get(Control)
    was = lost_document_details(store, lost)
    if chosen.apply:
        store.put(chosen.apply(store.orders(), order))
    details = {name: str(value) for name in ("subject", "until") if (value := getattr(order, name))}
    write_change(store.storage, request.action, order, was | details)
    return lost


def _remove_used_skip_order(store: StateStore) -> None:
    """Remove a used order to skip a run; after a reset or restore, it would apply to another run."""
    control, last = store.peek(Control), last_committed_run(store.storage, datetime.now(UTC))
    at = time_of(last.name) if last else None
    changed = without_used_skip_order(control, at) if at else control
    if changed != control:
        store.put(changed)


_MAX_NAMED = 20
"""Maximum number of bundles named in the answer to a stop or a pause."""


class ControlOperator(ClusterOperator):
    """Complete a stop, or change the state; then report the current orders.

    After a stop or a pause, the task waits up to `timeout_seconds` for bundles in progress. The file
    `state/change-<time>-<action>.json` records the person, the time and the reason of a change. A retry
    repeats the action; a repeated reset or restore only increases the state's sequence number.
    """

    template_fields: Sequence[str] = ("ordered",)

    def __init__(self, *, ordered: ControlInput | None = None, timeout_seconds: float = 30, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.ordered = ordered or ControlInput()
        self.timeout_seconds = timeout_seconds

    def execute(self, context: Context) -> dict[str, object]:
        """Carry out the action.

        Returns:
            `in_force`, the sentence about current orders. Depending on the action, also `state`, `file` or `lost` (why
            documents are lost, or were before they were replaced). After a stop or a pause, also `stopped` (the outcome
            of bundles in progress) and `undecided` (True if a run has no plan yet).

        Raises:
            AirflowFailException: a field is invalid or missing, or the state cannot be restored (`change_state`).
        """
        with fail_unless_temporary(context):
            (request, order), store = form_and_order(context), self._state_store(context)
            answer = self._carry_out(store, request, order)
            if self.ordered.get("undecided"):
                answer |= {"undecided": "the run in progress may still make a plan, but will not carry out the plan"}
            answer = {"in_force": self._orders_text(store)} | answer
        self.log.info("Result of %s for cluster %s:\n%s", request.action, self.entry.name, json.dumps(answer, indent=1))
        if request.form_action.needs_reason:
            self.log.warning("Cluster %s: %s was ordered %s", self.entry.name, request.action, order.by_text)
        return answer

    def _carry_out(self, store: StateStore, request: ControlRequest, order: GivenOrder) -> dict[str, object]:
        action, lost = request.action, self.ordered.get("lost", {})
        told: dict[str, object] = {}
        if request.form_action.stops_run:
            told["stopped"] = self._stop_outcome(store)
        elif action == EXPORT:
            told["file"] = export_state(store, order.at)
        elif action in (RESET, RESTORE):
            lost = change_state(store, action, order, request.subject)
            told["state"] = state_summary(store)
        elif action == SHOW:
            told["state"], lost = state_summary(store), store.lost_documents()
        return told | ({"lost": lost} if lost else {})

    def _stop_outcome(self, store: StateStore) -> dict[str, object] | str:
        """Return the outcome of the stopped run, or the error message if one of the run's files cannot be read."""
        try:
            stopped = wait_for_end(store, self.ordered.get("found") or find_last_run(store), self.timeout_seconds)
        except (StateError, SnapshotError) as error:
            return error.message
        return {
            "finished": dict(list(stopped.finished_moves.items())[:_MAX_NAMED]),
            "unfinished": list(stopped.unfinished_bundles[:_MAX_NAMED]),
            "not_begun": stopped.not_begun_count,
        }

    def _orders_text(self, store: StateStore) -> str:
        last = store.last_plan_id()
        # A stop is shown while a run that it may affect is in progress.
        running = is_in_progress(self.storage, last, datetime.now(UTC))
        return store.orders_text(self.entry.settings, time_of(last) if running else None)
