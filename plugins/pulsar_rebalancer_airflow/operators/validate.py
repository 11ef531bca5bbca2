"""Validate: run the expectation suites on the snapshot, before any decision."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException

from pulsar_rebalancer.reasons import Effect, Reason
from pulsar_rebalancer.run.explanation import explain
from pulsar_rebalancer_airflow.failures import final_unless_passing
from pulsar_rebalancer_airflow.locations import run_folder
from pulsar_rebalancer_airflow.validation.page import page_of
from pulsar_rebalancer_airflow.validation.validation_link import ValidationLink, page_address

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.sdk import Context

    from pulsar_rebalancer.run.request import Validation
    from pulsar_rebalancer.storage.path import StoragePath

FINDINGS = "findings"
"""XCom key of the findings, for people and other tasks; missing if there are none."""

_MEANS = {
    Effect.BLOCK: "Validation blocks the run; nothing was decided.",
    Effect.HOLD: "The run is decided and explained, but the gate stays closed.",
    Effect.QUARANTINE: "The brokers or bundles named are left out.",
    Effect.WARN: "The run continues unchanged.",
}


class ValidateOperator(BaseOperator):
    """Validate a run's snapshot. The task's XCom is the number of findings by effect and reason.

    The findings are in the log and in the XCom `findings`; the link *Validation result* shows them on a page. A retry
    with the same snapshot would give the same result, so a blocked run is not retried.

    Args:
        cluster: name in the clusters file.
        run: address of the run's folder.
    """

    template_fields: Sequence[str] = ("run",)
    operator_extra_links = (ValidationLink(),)

    def __init__(self, *, cluster: str, run: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.cluster = cluster
        self.run = run

    def execute(self, context: Context) -> dict[str, dict[str, int]]:
        """Validate the snapshot.

        Returns:
            Number of findings by effect and reason code.

        Raises:
            AirflowFailException: a finding blocks the run; the message gives the finding, the location of the result,
                and the remedy.
        """
        # Great Expectations takes seconds to load, so it is imported only here.
        from pulsar_rebalancer_airflow.validation.suites import validate

        with final_unless_passing(context):
            run = run_folder(context, self.cluster, self.run)
            validation = validate(run)
        counts = {str(effect): _plain(reasons) for effect in Effect if (reasons := validation.reasons(effect))}
        page = page_address(context["dag_run"].dag_id, context["dag_run"].run_id, run.name)
        if validation.findings:
            self._tell(context, run, validation, page)
        self.log.info("Validated: %s; as a page: %s", counts or "no findings", page)
        return counts

    def _tell(self, context: Context, run: StoragePath, validation: Validation, page: str) -> None:
        report, result = explain(validation), (run / "validation.json").uri
        gravest = report.reasons[0].effect
        document = {"cluster": self.cluster, "effect": gravest.value, **report.document()}
        context["ti"].xcom_push(key=FINDINGS, value=document | {"result": result, "page": page_of(run).uri})
        text = (
            f"Cluster {self.cluster}: {_MEANS[gravest]}\n{report.text()}\nThe full result: {result}, as a page: {page}"
        )
        if gravest is Effect.BLOCK:
            raise AirflowFailException(text)
        self.log.warning("%s", text)


def _plain(counts: Mapping[Reason, int]) -> dict[str, int]:
    """Return the counts with strings as keys, for an XCom."""
    return {str(reason): count for reason, count in counts.items()}
