"""Drain a broker and wait until it has no bundle that can move.

Use this command in a preStop hook or an autoscaler. The command calls Airflow at
AIRFLOW_URL with the token in AIRFLOW_TOKEN, and prints one sentence. Exit codes:

  0  the broker has no bundle that can move
  1  some bundles can still move when the time is up; a drain that was ordered continues
  2  Airflow refused the drain or cannot be used, or the command is wrong
"""

# This one file needs only Python: it is mounted into a broker's container, and runs there as a program.

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from http import HTTPStatus
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

EMPTY, NOT_YET, REFUSED = 0, 1, 2

PAUSE_SECONDS = 5.0

_ANSWER_TIMEOUT_S = 30.0
_MAX_ANSWER_BYTES = 64 * 1024 * 1024
_REPLAN_REASONS = ("other_plan", "plan_expired")
"""Reason codes after which the drain is planned again, for example because another drain was ordered first."""


class RefusedError(Exception):
    """Airflow refused the request, or its answer is invalid; the message contains no secrets."""


class OutdatedPlanError(RefusedError):
    """Airflow refused an order that came too late for its plan; the order of a new plan may succeed."""


class TimeLimitError(Exception):
    """The time limit has passed. The message describes the last known state."""


class _NoRedirects(HTTPRedirectHandler):
    """Refuses redirects, because a redirect would send the token elsewhere."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        """Return None, which turns the redirect into an error."""


class AirflowClient:
    """A client for a cluster's by-hand DAG (the APIs of Airflow and of the cluster page) with a time limit."""

    def __init__(self, url: str, token: str, cluster: str, time_limit_s: float) -> None:
        self._url = url.rstrip("/")
        self._token = token
        self._dag = quote(f"pulsar_by_hand__{cluster}", safe="")
        self._until = time.monotonic() + time_limit_s
        self._opener = build_opener(_NoRedirects())

    def drain(self, broker: str, reason: str) -> None:
        """Plan and order the drain of a broker, again if the order comes too late for its plan.

        Raises RefusedError if the plan or order was refused or failed, NotYetError if it was not in time.
        """
        while True:
            plan = self._run_by_hand_dag(action="drain", broker=[broker], reason=reason)
            try:
                self._run_by_hand_dag(plan=plan)
                return
            except OutdatedPlanError as error:
                self._pause_or_fail(str(error))

    def _run_by_hand_dag(self, **form: Any) -> str:
        """Run the by-hand DAG, and return the hash of the plan that it shows; empty if it shows no plan."""
        begun = self._request_json(f"/api/v2/dags/{self._dag}/dagRuns", {"logical_date": None, "conf": form})
        run = quote(str(begun["dag_run_id"]), safe="")
        while True:
            answer = self._request_json(f"/pulsar_rebalancer/dags/{self._dag}/runs/{run}/answer")
            if answer["state"] == "done":
                return str(answer["plan"])
            if answer["state"] not in ("waiting", "running"):
                outdated = any(f"({code})" in answer["text"] for code in _REPLAN_REASONS)
                raise (OutdatedPlanError if outdated else RefusedError)(f"{answer['state']}: {answer['text']}")
            self._pause_or_fail(f"Airflow has not yet planned or ordered the drain: the DAG run is {answer['state']}")

    def wait_until_empty(self, broker: str) -> None:
        """Wait until no movable bundle is left on a drained broker.

        Raises RefusedError if somebody released the broker, NotYetError if bundles are left at the end.
        """
        while True:
            page = self._request_json(f"/pulsar_rebalancer/dags/{self._dag}/overview")
            drains = {drain["broker"]: drain for drain in page["drains"]}
            if page["sampled_at"] and broker not in drains:
                raise RefusedError(f"{broker} is no longer drained")
            left = drains[broker]["movable"] if broker in drains else None
            if left == 0:
                return
            held = "its bundles are not known yet" if left is None else f"still owns bundles that can move: {left}"
            self._pause_or_fail(f"{broker} is drained, but {held}")

    def _pause_or_fail(self, result: str) -> None:
        if time.monotonic() >= self._until:
            raise TimeLimitError(result)
        time.sleep(min(PAUSE_SECONDS, max(0.0, self._until - time.monotonic())))

    def _request_json(self, path: str, document: Any = None) -> Any:
        """Send a request and return the answer. A GET request is repeated until it is answered."""
        body = None if document is None else json.dumps(document).encode()
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        request = Request(self._url + path, body, headers)
        while True:
            try:
                with self._opener.open(request, timeout=_ANSWER_TIMEOUT_S) as answer:
                    return json.loads(answer.read(_MAX_ANSWER_BYTES))
            except HTTPError as error:
                if body is not None or error.code < HTTPStatus.INTERNAL_SERVER_ERROR:
                    raise RefusedError(f"Airflow answered {error.code} to {path}") from None
                problem = str(error.code)
            except ValueError:
                raise RefusedError(f"Airflow's answer to {path} is not JSON") from None
            except OSError as error:
                if body is not None:
                    raise RefusedError(f"Airflow did not answer {path} ({type(error).__name__})") from None
                problem = type(error).__name__
            self._pause_or_fail(f"Airflow does not answer {path} ({problem})")


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("broker", help="brokerId (host:port)")
    parser.add_argument("--cluster", required=True, help="cluster's name in the clusters file")
    parser.add_argument("--seconds", required=True, type=float, help="maximum time to wait, in seconds")
    parser.add_argument("--reason", default="pulsar-rebalancer drain", help="reason for the drain, shown to everyone")


def run(args: argparse.Namespace) -> int:
    url, token = os.environ.get("AIRFLOW_URL", ""), os.environ.get("AIRFLOW_TOKEN", "").strip()
    if urlsplit(url).scheme not in ("http", "https") or not token:
        return _print(REFUSED, "the environment variables AIRFLOW_URL (http or https) and AIRFLOW_TOKEN are needed")
    airflow = AirflowClient(url, token, args.cluster, args.seconds)
    try:
        airflow.drain(args.broker, args.reason)
        airflow.wait_until_empty(args.broker)
    except TimeLimitError as error:
        return _print(NOT_YET, f"time limit reached: {error}")
    except RefusedError as error:
        return _print(REFUSED, str(error))
    except (KeyError, TypeError) as error:
        return _print(REFUSED, f"Airflow runs another release of the rebalancer ({error!r:.80})")
    return _print(EMPTY, f"{args.broker} has no bundle that can move")


def _print(exit_code: int, text: str) -> int:
    print(text)
    return exit_code


if __name__ == "__main__":
    _parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(_parser)
    sys.exit(run(_parser.parse_args()))
