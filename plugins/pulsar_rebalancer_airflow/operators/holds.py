"""Holds: reasons not to start further moves or splits. They are checked before each bundle of a plan."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pulsar_rebalancer.config.field_types import Mode
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.errors import SettingsError
from pulsar_rebalancer.orders.breaker import closed_at
from pulsar_rebalancer.orders.in_force import closings, since
from pulsar_rebalancer.orders.manual_plans import Drains
from pulsar_rebalancer.orders.order import Closed, Control, JudgedRun, OrdersInForce
from pulsar_rebalancer.orders.roll_document import Roll
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.plan import Move, Split
from pulsar_rebalancer.run.snapshot import StateBefore
from pulsar_rebalancer.strategies.shedders.registry import load_clusters
from pulsar_rebalancer_airflow.options import clusters_file
from pulsar_rebalancer_airflow.state_store import ORDERS, StateStore

if TYPE_CHECKING:
    from airflow.sdk import Context

_log = logging.getLogger(__name__)

_SECONDS_BETWEEN_LOOKS = 1.0


class Holds:
    """The current holds: a stop, and the orders and settings that would close the gate now.

    Once noticed, a hold applies until the task ends.

    Args:
        planned: the plan's settings.
        given: the cluster's settings when the task started.
        before: the drains and the rolling restart that the plan serves, and the orders when it was made.
        each_time: True to check on every call; otherwise check at most once a second.
        failed: returns the number of failed moves that the circuit breaker has not counted yet.
    """

    def __init__(
        self,
        context: Context,
        cluster: str,
        store: StateStore,
        planned: Settings,
        given: Settings,
        before: StateBefore,
        *,
        each_time: bool = False,
        failed: Callable[[datetime | None], int] = lambda _: 0,
    ) -> None:
        self._run = JudgedRun(started=context["dag_run"].start_date)
        self._store = store
        self._file = _FileNow(cluster, given)
        self._mode = given.mode
        self._planned = planned
        self._present = given
        self._between_looks = 0 if each_time else _SECONDS_BETWEEN_LOOKS
        self._looked_at = -math.inf
        self._failed = failed
        self._closed_at: datetime | None = None
        self._reason: Reason | None = None
        self._before = before
        self._control = Control()
        self._drained: frozenset[str] = frozenset()
        self._rolls = False

    def reason(self) -> Reason | None:
        """Return why no further move or split may start; None if nothing prevents it."""
        self._look()
        if self._reason is None and self._breaks():
            self._reason = Reason.BREAKER_OPEN
            _log.warning("No more bundles are started: %d moves of the run have failed", self._failed(self._closed_at))
        return self._reason

    def _breaks(self) -> bool:
        """Return whether failed moves have reached the breaker's limit; the *report* task opens it later."""
        rules = self._present.breaker
        return (
            rules is not None and rules.failed_moves is not None and self._failed(self._closed_at) >= rules.failed_moves
        )

    def skip_reason(self, part: Move | Split) -> Reason | None:
        """Return why orders given after planning forbid or no longer want a move or split; None if allowed.

        Call `reason` first, because it reads the current orders and settings.
        """
        if self._looked_at == -math.inf:
            self._look()
        if isinstance(part, Split):
            return self._since(part.bundle, {part.broker})
        if part.destination in self._drained:
            return Reason.DRAINING
        roll = self._before.roll
        if roll is not None and roll.broker in (part.source, part.destination) and not self._rolls:
            return Reason.ROLL_STOPPED
        if part.source in self._before.drains.brokers and part.source not in self._drained:
            return Reason.NOT_DRAINED
        return self._since(part.bundle, {part.source, part.destination})

    def _since(self, bundle: str, brokers: Collection[str]) -> Reason | None:
        return since((self._planned, self._before.control), (self._present, self._control), bundle, brokers)

    def _look(self) -> None:
        if self._reason is not None or time.monotonic() - self._looked_at < self._between_looks:
            return
        orders = self._store.orders(among=ORDERS)
        self._control = control = orders.get(Control).present(datetime.now(UTC))
        roll, self._drained = orders.get(Roll), frozenset(orders.get(Drains).brokers)
        if self._before.roll is not None:
            ended = roll.stop_in(control) or roll.skip_in(control) or not roll.active
            self._rolls = roll.in_phase_of(self._before.roll) and not ended
        hold = self._found(orders)
        if hold is not None:
            self._reason = hold[0]
            _log.warning("No more bundles are started: %s %s", *hold)
        self._looked_at = time.monotonic()

    def _found(self, orders: OrdersInForce) -> Closed | None:
        self._closed_at = closed_at(self._control)
        settings = self._file.settings()
        self._present = settings or self._present
        closed = closings(self._present, orders, datetime.now(UTC), self._run)
        if closed:
            return closed[0]
        if settings is None:
            return Closed(Reason.WRONG_SETTING, self._file.error)
        if settings.mode is Mode.APPROVE and self._mode is not Mode.APPROVE:
            return Closed(Reason.AWAITING_APPROVAL, f"mode is now {settings.mode}")
        return None


class _FileNow:
    """A cluster's current settings, read again whenever the clusters file changes; else those given."""

    def __init__(self, cluster: str, given: Settings) -> None:
        self._cluster = cluster
        self._path = clusters_file()
        self._settings = given
        self._stamp: tuple[int, int] | None = None
        self._failed = False
        self.error = ""

    def settings(self) -> Settings | None:
        """Return the settings; None after two failed reads, because one can fail while an editor writes."""
        try:
            self._read()
        except (OSError, SettingsError) as error:
            self.error, again, self._failed = str(error), self._failed, True
            return None if again else self._settings
        self._failed = False
        return self._settings

    def _read(self) -> None:
        if self._stamp is None and not self._path.exists():
            return
        status = self._path.stat()
        stamp = (status.st_mtime_ns, status.st_size)
        if stamp != self._stamp:
            entry = next((known for known in load_clusters(self._path) if known.name == self._cluster), None)
            if entry is None or entry.error:
                why = entry.error if entry else f"{self._path.name}: {self._cluster} is gone"
                raise SettingsError(Reason.WRONG_SETTING, why)
            self._settings, self._stamp = entry.settings, stamp
