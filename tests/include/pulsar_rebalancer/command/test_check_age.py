import os
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pulsar_rebalancer.command.__main__ import main
from pulsar_rebalancer.command.check_age import CRITICAL, OK, WARNING, RunAges, read_ages, status_code
from pulsar_rebalancer.storage.documents import ClusterStorage, CommitMark
from pulsar_rebalancer.storage.path import StoragePath

WITHOUT_FRAMEWORKS = """
import sys
sys.modules.update(airflow=None, pyspark=None, great_expectations=None)
from pulsar_rebalancer.command.__main__ import main
sys.exit(main())
"""


@pytest.fixture
def storage(tmp_path: Path) -> ClusterStorage:
    return ClusterStorage(str(tmp_path), "east")


def ended_run(storage: ClusterStorage, seconds_ago: float) -> StoragePath:
    at = datetime.now(UTC) - timedelta(seconds=seconds_ago)
    run = storage.new_run_folder(at)
    (run / "outcome.json").write_json({"ended_at": at.isoformat()})
    return run


def committed(storage: ClusterStorage, seconds_ago: float) -> None:
    at = datetime.now(UTC) - timedelta(seconds=seconds_ago)
    CommitMark(seq=3, at=at).write(storage.new_run_folder(at))


def check(storage: ClusterStorage, limit: str = "180") -> int:
    return main(asked(storage, limit))


def asked(storage: ClusterStorage, limit: str) -> list[str]:
    return ["check-age", "--root", storage.root, "--cluster", storage.cluster, "--max-age-seconds", limit]


@pytest.mark.parametrize(
    ("outcome", "decision", "code"),
    [
        (30, 30, OK),
        (180, 180, OK),
        (30, 181, WARNING),  # runs end, and decide nothing
        (30, None, WARNING),
        (181, 181, CRITICAL),
        (181, 30, CRITICAL),
        (None, 30, CRITICAL),
        (None, None, CRITICAL),
    ],
)
def test_the_exit_code_follows_the_ages(outcome, decision, code):
    assert status_code(RunAges(outcome, decision), 180) == code


def test_the_last_run_may_be_under_way(storage):
    ended_run(storage, 100_000)  # a day before
    ended_run(storage, 70)
    (storage.new_run_folder(datetime.now(UTC)) / "input" / "settings.json").write_json({})

    found = read_ages(storage, datetime.now(UTC)).outcome

    assert found is not None
    assert 70 <= found < 100_000


@pytest.mark.parametrize("seconds_ago", [900, -18_000])  # too old; from the future
def test_runs_that_decide_nothing_are_a_warning(storage, capsys, seconds_ago):
    ended_run(storage, 20)
    committed(storage, seconds_ago)

    assert check(storage) == WARNING
    assert capsys.readouterr().out.startswith("WARNING - cluster east: ")


def test_missing_outcomes_are_critical(storage, capsys):
    assert check(storage) == CRITICAL
    assert capsys.readouterr().out == (
        "CRITICAL - cluster east: last outcome: never; last committed decision: never; limit: 180 s\n"
    )


@pytest.mark.parametrize("content", [b"", b"[]", b'{"ended_at": "yesterday"}'])
def test_an_outcome_that_cannot_be_read(storage, capsys, content):
    (ended_run(storage, 5) / "outcome.json").write_bytes(content)

    assert check(storage) == CRITICAL
    assert capsys.readouterr().out.startswith("CRITICAL - cluster east: ")


@pytest.mark.parametrize("limit", ["0", "-1", "nan", "inf", "soon"])
def test_a_limit_that_is_none_is_refused(storage, limit):
    with pytest.raises(SystemExit) as ended:
        check(storage, limit)

    assert ended.value.code == CRITICAL


def test_a_cluster_name_that_leads_elsewhere_is_refused(tmp_path):
    with pytest.raises(SystemExit) as ended:
        check(ClusterStorage(str(tmp_path), "../east"))

    assert ended.value.code == CRITICAL


def test_check_age_runs_without_airflow(storage):
    ended_run(storage, 40)
    committed(storage, 4000)
    committed(storage, 41)
    command = [sys.executable, "-c", WITHOUT_FRAMEWORKS, *asked(storage, "3000")]
    path = {"PYTHONPATH": os.pathsep.join(sys.path)}

    done = subprocess.run(command, env=os.environ | path, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (OK, "")
    assert re.fullmatch(
        r"OK - cluster east: last outcome: \d+ s old; last committed decision: \d+ s old; limit: 3000 s "
        r"\| outcome_age=\d+s;;3000 decision_age=\d+s;;3000\n",
        done.stdout,
    )
