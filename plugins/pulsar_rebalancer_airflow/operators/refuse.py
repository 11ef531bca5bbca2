"""The only task of a cluster whose entry in the clusters file is broken."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException

if TYPE_CHECKING:
    from airflow.sdk import Context


class RefuseOperator(BaseOperator):
    """Fail with the reason why nothing can be done. There are no retries, because they would fail in the same way.

    Args:
        reason: what is wrong and what to do.
    """

    def __init__(self, *, reason: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.reason = reason

    def execute(self, context: Context) -> None:
        """Fail.

        Raises:
            AirflowFailException: always.
        """
        raise AirflowFailException(self.reason)
