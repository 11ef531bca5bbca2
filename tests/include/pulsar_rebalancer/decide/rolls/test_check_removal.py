from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from tests.include.pulsar_rebalancer.decide.snapshots import NOW, Snapshots, name
from tests.plain_python import run_without_frameworks

from pulsar_rebalancer.decide.rolls.check_removal import DOES_NOT_FIT, FITS, UNKNOWN, check, main
from pulsar_rebalancer.policies.cluster_policies import Policies
from pulsar_rebalancer.policies.isolation import IsolationPolicy
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.request import Finding, Validation
from pulsar_rebalancer.state.manual_plans import Drain, Drains

if TYPE_CHECKING:
    from pathlib import Path

OWNED = {
    "a": {name(1): 20.0, name(2): 20.0, name(3, "pulsar/system"): 0.0},
    "b": {name(4): 10.0},
    "c": {name(5): 10.0, name(6): 2.0},
}


@pytest.fixture
def cluster(tmp_path: Path) -> Snapshots:
    return Snapshots(tmp_path, OWNED, max_bundles_per_run=1)


def judged(cluster: Snapshots, broker: str = "a:1", limit: float | None = None, **taken: Any) -> tuple[int, str]:
    cluster.take(**taken)
    return check(cluster.storage, broker, NOW + timedelta(seconds=200), 300, limit)


def test_a_load_that_fits_and_the_broker_with_the_least(cluster: Snapshots) -> None:
    cluster.unloaded = {name(1): timedelta(minutes=1)}  # neither the grace period nor a cap stops a removal for ever

    assert judged(cluster) == (
        FITS,
        "the 2 bundles of a:1 find room on the other brokers, whose highest score would be 32.0 (limit 85); "
        "cheapest to remove is b:1, with 0.0 MB/s",
    )


def test_the_bundles_go_where_a_drain_puts_them(tmp_path: Path) -> None:
    owned = {"a": {name(n): 7.0 + n for n in range(6)}, "b": {name(10): 30.0}, "c": {name(11): 5.0}, "d": {}}
    cluster = Snapshots(tmp_path, owned)
    cluster.settings = cluster.settings.model_copy(update={"overloaded_threshold": 35.0})

    summary, found = cluster.show(action="drain", broker="a:1", reason="a test")
    code, said = judged(cluster, after=timedelta(seconds=1))

    assert set(found.values()) >= {"c:1", "d:1"}
    stay = sum(end == "would_overload" for end in found.values())
    assert code == (DOES_NOT_FIT if stay else FITS)
    assert summary.predicted_max is not None
    assert f"would be {summary.predicted_max:.1f} " in said or f"would_overload x{stay}" in said


@pytest.mark.parametrize(
    ("limit", "said", "cheapest"),
    [
        (31.0, "1 of 2 bundles of a:1 would find no room on the other brokers (limit 31): would_overload x1", "b:1"),
        (19.0, "2 of 2 bundles of a:1 would find no room on the other brokers (limit 19): would_overload x2", ""),
    ],
)
def test_a_load_for_which_the_others_have_no_room(cluster: Snapshots, limit: float, said: str, cheapest: str) -> None:
    found = judged(cluster, limit=limit)

    none = "none of the 3 brokers with the least traffic can be removed"
    assert found == (
        DOES_NOT_FIT,
        f"{said}; {f'cheapest to remove is {cheapest}, with 0.0 MB/s' if cheapest else none}",
    )
    cluster.settings = cluster.settings.model_copy(update={"overloaded_threshold": limit})
    assert judged(cluster, after=timedelta(seconds=1)) == found


def test_a_policy_may_keep_the_bundles_on_the_broker(cluster: Snapshots) -> None:
    policy = IsolationPolicy(name="p", namespaces=("t/n",), primary=("a:1",), secondary=())
    cluster.policies = Policies(isolation=(policy,))

    code, said = judged(cluster)

    assert code == DOES_NOT_FIT
    assert "policy_forbids x2" in said


def test_what_is_drained_already_needs_room_as_well(cluster: Snapshots) -> None:
    assert judged(cluster, "b:1", limit=50)[0] == FITS
    marked = Drains(brokers={"c:1": Drain(at=NOW, by="ada", reason="new disks")}).model_dump(mode="json")

    later = timedelta(seconds=1)
    assert judged(cluster, "b:1", limit=63, drains=marked, after=later)[0] == FITS
    code, said = judged(cluster, "b:1", limit=61, drains=marked, after=2 * later)
    assert (code, said.partition(";")[0][-17:]) == (DOES_NOT_FIT, "would_overload x1")


@pytest.mark.parametrize(
    ("broker", "quarantined", "code", "said"),
    [
        ("z:1", [], UNKNOWN, "z:1 is not one of the 3 active brokers"),
        ("a:1", ["a:1"], UNKNOWN, "a:1 cannot take bundles: Validation left the broker out."),
        ("a:1", ["b:1", "c:1"], DOES_NOT_FIT, "no broker would be left to take the bundles of a:1"),
    ],
)
def test_a_broker_that_cannot_be_judged(
    cluster: Snapshots, broker: str, quarantined: list[str], code: int, said: str
) -> None:
    cluster.quarantined = quarantined

    assert judged(cluster, broker) == (code, said)


def test_without_a_young_valid_sample_nothing_is_known(cluster: Snapshots) -> None:
    assert check(cluster.storage, "a:1", NOW, 300) == (UNKNOWN, "no run has validated a sample")

    run = cluster.take()
    assert check(cluster.storage, "a:1", NOW + timedelta(seconds=300), 300)[0] == FITS
    late = check(cluster.storage, "a:1", NOW + timedelta(seconds=301), 300)
    assert late == (UNKNOWN, "the newest sample is 301 s old, limit 300 s")

    under_way = cluster.storage.new_run(NOW + timedelta(seconds=60))
    (under_way / "input" / "settings.json").write_json({})
    assert check(cluster.storage, "a:1", NOW + timedelta(seconds=90), 300)[0] == FITS
    Validation(findings=(Finding(reason=Reason.TOO_FEW_BROKERS),)).write(run)
    blocked = check(cluster.storage, "a:1", NOW + timedelta(seconds=90), 300)
    assert blocked == (UNKNOWN, "validation stopped the newest run: too_few_brokers")
    Validation().write(run)
    (run / "input" / "bundles.parquet").write_bytes(b"")
    assert check(cluster.storage, "a:1", NOW, 300)[0] == UNKNOWN


def test_it_runs_without_airflow(cluster: Snapshots, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.take(after=datetime.now(UTC) - NOW)
    arguments = ["b:1", "--root", cluster.storage.root, "--cluster", "east", "--max-age-seconds", "3000"]

    done = run_without_frameworks("pulsar_rebalancer.decide.rolls.check_removal", *arguments)

    assert (done.returncode, done.stderr) == (FITS, "")
    assert done.stdout.startswith("FITS - cluster east: the 1 bundle of b:1 find")
    assert main([*arguments, "--limit", "15"]) == DOES_NOT_FIT
    assert capsys.readouterr().out.startswith("DOES NOT FIT - cluster east: 1 of 1 bundle of b:1 would find no room")
    for wrong in (["--limit", "0"], ["--cluster", "../x"]):
        with pytest.raises(SystemExit) as refused:
            main([*arguments, *wrong])
        assert refused.value.code == UNKNOWN
