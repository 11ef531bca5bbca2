"""Validate: the suites over the snapshot, before anything is decided."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException

from pulsar_rebalancer.reasons import Effect
from pulsar_rebalancer.storage import Folder
from pulsar_rebalancer_airflow.failures import final_unless_passing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.sdk import Context


class ValidateOperator(BaseOperator):
    """Validate a run's snapshot; the counts of findings by effect and reason are the XCom of the task.

    A retry validates the same snapshot again and comes to the same end, so a block is not tried again.

    Args:
        run: address of the run's folder.
    """

    template_fields: Sequence[str] = ("run",)

    def __init__(self, *, run: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.run = run

    def execute(self, context: Context) -> dict[str, dict[str, int]]:
        """Validate.

        Returns:
            Effect to reason code to how often it was found.

        Raises:
            AirflowFailException: something blocks; the message says what, where the result lies, and what to do.
        """
        # Great Expectations takes seconds to load: only the task that needs it pays.
        from pulsar_rebalancer_airflow.validation import validate

        run = Folder(self.run)
        with final_unless_passing(context):
            validation = validate(run)
        counts = {effect.value: found for effect in Effect if (found := validation.reasons(effect))}
        if validation.findings:
            self.log.warning("Findings in %s/validation.json:\n%s", run.uri, validation.sentence())
        if Effect.BLOCK.value in counts:
            context["ti"].xcom_push(key="findings", value=counts)
            raise AirflowFailException(
                f"Validation blocks the run; nothing was decided.\n{validation.sentence()}\n"
                f"All findings: {run.uri}/validation.json"
            )
        self.log.info("Validated: %s", counts or "no findings")
        return counts
