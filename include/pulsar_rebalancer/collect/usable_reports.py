"""The usable load reports, and the reasons why the others are unusable."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from pulsar_rebalancer.errors import AdminError
from pulsar_rebalancer.reasons import Reason, Trait
from pulsar_rebalancer.run.tables import BUNDLES
from pulsar_rebalancer.texts import one_line

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pulsar_rebalancer.collect.load_report import BrokerReport
    from pulsar_rebalancer.collect.runtimes import Runtimes

_log = logging.getLogger(__name__)

LONGEST_NAME = 200
"""Maximum length of names from a broker's response; longer names are cut."""


@dataclass(frozen=True, slots=True)
class UsableReports:
    """The load reports of a cluster's brokers.

    Attributes:
        by_broker: the usable reports, by broker.
        errors: error by broker, for brokers without a usable report.
    """

    by_broker: Mapping[str, BrokerReport]
    errors: Mapping[str, Reason]

    @classmethod
    def of(
        cls, answers: Mapping[str, BrokerReport | AdminError | None], listed: Collection[str], runtimes: Runtimes
    ) -> UsableReports:
        """Return the usable reports among these responses, and why the other responses are unusable.

        Raises:
            AdminError: no report is usable, and the cause is the credentials or the load manager.
        """
        judged = {broker: _judge(broker, answer, listed) for broker, answer in answers.items()}
        reports = {broker: verdict for broker, verdict in judged.items() if not isinstance(verdict, Reason)}
        refused = {broker: verdict for broker, verdict in judged.items() if isinstance(verdict, Reason)}
        if not reports:
            _refuse_if_hopeless(answers, refused, runtimes.of_leader)
        failed = {broker: reason for broker, reason in runtimes.failed.items() if broker not in reports}
        return cls(reports, failed | refused)

    @property
    def without_persistent(self) -> list[str]:
        """Return the brokers that accept no persistent topics; empty if no broker accepts any."""
        closed = [broker for broker, report in self.by_broker.items() if not report.takes_persistent_topics]
        return closed if len(closed) < len(self.by_broker) else []

    def bundles(self) -> pa.Table:
        """Return the reported bundles; a bundle that several brokers report has a row for each of them."""
        return pa.concat_tables([report.bundles for report in self.by_broker.values()] or [BUNDLES.empty_table()])


def _judge(broker: str, answer: BrokerReport | AdminError | None, listed: Collection[str]) -> BrokerReport | Reason:
    if isinstance(answer, AdminError):
        _log.warning("%s", answer)
        return answer.reason
    if answer is None:
        return Reason.NO_LOAD_REPORT
    if _is_of_another(answer, broker, listed):
        names = one_line(" ".join(answer.names), LONGEST_NAME)
        _log.warning("%s answered with the load report of %s", broker, names)
        return Reason.WRONG_BROKER
    return answer


def _is_of_another(report: BrokerReport, broker: str, listed: Collection[str]) -> bool:
    """Return whether a report is known to come from another listed broker, for example because of a proxy."""
    names = {name.lower() for name in report.names}
    return broker.lower() not in names and any(other.lower() in names for other in listed)


def _refuse_if_hopeless(
    answers: Mapping[str, BrokerReport | AdminError | None],
    refused: Mapping[str, Reason],
    runtime: Mapping[str, str],
) -> None:
    for answer in answers.values():
        if isinstance(answer, AdminError) and answer.reason.has(Trait.CREDENTIALS):
            raise answer
    if Reason.NO_LOAD_REPORT in refused.values():
        manager = one_line(runtime.get("loadManagerClassName", "of an unknown class"), LONGEST_NAME)
        raise AdminError(Reason.NO_LOAD_REPORT, f"no broker gives a load report: the load manager is {manager}")
