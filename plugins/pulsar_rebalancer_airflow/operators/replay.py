"""Replay: report what other settings would have done with recorded load, in a separate Spark application."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from pulsar_rebalancer.errors import SettingsError
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.replay.current import current_settings
from pulsar_rebalancer.replay.replay_request import ANSWER, ReplayRequest
from pulsar_rebalancer.storage.layout import ClusterStorage
from pulsar_rebalancer_airflow.failures import final_unless_passing
from pulsar_rebalancer_airflow.operators.spark_application import SparkApplicationOperator, checked_connection
from pulsar_rebalancer_airflow.replay.replay_link import ReplayLink
from pulsar_rebalancer_airflow.spark_connect import CONNECTION_TYPE

if TYPE_CHECKING:
    from airflow.sdk import Context
    from pydantic import JsonValue

    from pulsar_rebalancer.config.clusters_file import ClusterEntry
    from pulsar_rebalancer.storage.path import StoragePath


class ReplayOperator(SparkApplicationOperator):
    """Submit the replay application. The task's XCom is the application's answer; the task has a link to the report.

    The application logs its progress. A retry runs the replay again in a new folder.

    Args:
        entry: the cluster's entry in the clusters file.
    """

    operator_extra_links = (ReplayLink(),)

    def __init__(self, *, entry: ClusterEntry, root: str, **kwargs: Any) -> None:
        super().__init__(
            application="replay",
            failed=Reason.REPLAY_FAILED,
            conn_id=entry.settings.spark_connection,
            conf={"spark.ui.showConsoleProgress": "false"},
            name="pulsar-rebalancer-replay",
            **kwargs,
        )
        self.entry = entry
        self.root = root
        self.report_of = ""

    def execute(self, context: Context) -> dict[str, JsonValue]:  # type: ignore[override]
        """Submit the application, and wait for it to finish.

        Returns:
            The content of `answer.json`; the figures of each variant are in `results.parquet`.

        Raises:
            AirflowFailException: `wrong_setting` or `contradiction` in the parameters or the connection.
            AirflowException: the application failed. The message contains the last lines of its output, and the XCom
                `failure` is its reason code.
        """
        storage = ClusterStorage(self.root, self.entry.name)
        folder = storage.new_replay(datetime.now(UTC))
        with final_unless_passing(context):
            request = self._request(context, storage)
            connection = checked_connection(self._conn_id)
            if connection.conn_type == CONNECTION_TYPE:
                raise SettingsError(
                    Reason.WRONG_SETTING,
                    f"spark_connection {self._conn_id}: a replay deals Python objects out to executors, which a Spark "
                    "Connect server does not do: it needs a connection of type spark",
                )
            request.write(folder)
        self.application_args = ["--root", self.root, "--replay", folder.uri]
        self.log.info("Replay of %s to %s in %s", request.start, request.end, folder.uri)
        self._submit(context, connection)
        self.report_of = folder.name
        return _answer(folder)

    def _request(self, context: Context, storage: ClusterStorage) -> ReplayRequest:
        params: dict[str, Any] = {name: value for name, value in context["params"].items() if value is not None}
        end = params.get("end") or datetime.now(UTC).isoformat()
        try:
            start = params.get("start") or (datetime.fromisoformat(end) - timedelta(days=1)).isoformat()
        except (ValueError, OverflowError):
            raise SettingsError(Reason.WRONG_SETTING, f"end: {str(end)[:80]!r} is not a time") from None
        run = context["dag_run"]
        settings, source = current_settings(storage, self.entry.settings)
        return ReplayRequest.checked(
            params
            | {
                "start": start,
                "end": end,
                "cluster": self.entry.name,
                "airflow_run_id": run.run_id,
                "requested_by": run.triggering_user_name or "",
                "settings": settings,
                "settings_from": source,
            }
        )


def _answer(folder: StoragePath) -> dict[str, JsonValue]:
    answer: dict[str, JsonValue] = (folder / ANSWER).read_json()
    return answer
