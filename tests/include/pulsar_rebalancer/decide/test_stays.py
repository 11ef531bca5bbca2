from dataclasses import replace
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from tests.include.pulsar_rebalancer.decide.snapshots import NOW, Snapshots, fates, name, planned
from tests.vectors.rows import broker, bundle, sample

from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.decide import plan_files, stays
from pulsar_rebalancer.decide.run_input import RunBundles, RunInput
from pulsar_rebalancer.decide.run_plan import plan_run
from pulsar_rebalancer.decide.stays import RULES, BundleFacts, stay_reasons
from pulsar_rebalancer.errors import PlanError
from pulsar_rebalancer.orders.manual_plans import Drain, Drains
from pulsar_rebalancer.orders.roll_document import Phase, Roll
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run import bundle_columns
from pulsar_rebalancer.run.bundle_columns import BundleSample
from pulsar_rebalancer.run.tables import MEANS, Measure, table
from pulsar_rebalancer.strategies.sample import CandidateMove, ClusterSample

SYSTEM = "pulsar/system/0x00000000_0xffffffff"
EVERY_REASON: dict[str, Any] = {
    "settings": Settings(excluded_namespaces=("pulsar/system",), excluded_bundles=("pulsar/*",)),
    "quarantined": (SYSTEM,),
    "bundles_to_split": (SYSTEM,),
    "move_reasons": {SYSTEM: Reason.RECENTLY_UNLOADED},
}
NOTHING: dict[str, Any] = {"settings": Settings(), "move_reasons": {}}


def test_the_first_rule_of_the_list_counts():
    own = [*dict.fromkeys(rule.reason for rule in RULES if rule.find_bundles)]
    assert own == [
        *("system_namespace", "namespace_excluded", "bundle_excluded", "bundle_quarantined", "to_be_split"),
        *("destination_kept", "recently_unloaded"),
    ]
    names = pa.array(["t/n/0x0_0x1"])
    facts: dict[str, Any] = dict.fromkeys(("quarantined", "bundles_to_split"), ("t/n/0x0_0x1",))
    facts |= {"settings": Settings(excluded_namespaces=("t/n",), excluded_bundles=("t/*",))}
    facts |= {"move_reasons": {"t/n/0x0_0x1": Reason.RECENTLY_UNLOADED}}
    found = [stay_reasons(pa.array([SYSTEM]), BundleFacts(**EVERY_REASON)).to_pylist()[0]]
    found += stay_reasons(names, BundleFacts(**facts)).to_pylist()
    facts["settings"] = Settings(excluded_bundles=("t/*",))
    found += stay_reasons(names, BundleFacts(**facts)).to_pylist()
    facts["settings"] = Settings()
    found += stay_reasons(names, BundleFacts(**facts)).to_pylist()
    for name_of in ("quarantined", "bundles_to_split"):
        facts[name_of] = ()
        found += stay_reasons(names, BundleFacts(**facts)).to_pylist()
    assert found == [reason for reason in own if reason is not Reason.DESTINATION_KEPT]
    assert stay_reasons(names, BundleFacts(**NOTHING)).to_pylist() == [None]


def moved(*names: str, source: str = "a:1", **more: Any) -> list[CandidateMove]:
    given: Any = {"pair": 0, "measure": Measure.THROUGHPUT, "reason": Reason.TAKEN, "destination": "b:1"}
    found = [BundleSample(source, name, topics=1, msg_throughput=5.0) for name in names]
    return [CandidateMove.new(each, rank=rank, **given)._replace(**more) for rank, each in enumerate(found)]


def cluster(**more: Any) -> ClusterSample:
    rows = [bundle("a:1", name(1)), bundle("a:1", name(2)) | {"reason": "bundle_excluded"}, bundle("b:1", name(3))]
    return sample([broker("a:1", 90), broker("b:1", 10)], rows, **more)


@pytest.mark.parametrize(
    ("moves", "said"),
    [
        (moved(name(9)), "is not a bundle of 'a:1'"),
        (moved(name(3)), "is not a bundle of 'a:1'"),
        (moved(name(1), source="z:1"), "is not a bundle of 'z:1'"),
        (moved(name(1), name(1)), "is moved twice"),
        (moved(name(1), traffic=float("nan")), "values"),
        (moved(name(1), msg_throughput=-1.0), "values"),
        (moved(name(1), msg_rate=float("inf")), "values"),
    ],
)
def test_an_impossible_move_of_a_strategy_is_an_error(moves, said):
    with pytest.raises(PlanError, match=said) as refused:
        stays.checked_moves(cluster(), moves)
    assert refused.value.reason is Reason.BAD_RESULT
    idle = [move._replace(reason=Reason.OVER_REMAINING) for move in moves]
    assert stays.checked_moves(cluster(), idle) == idle


def test_a_bundle_stays_for_its_own_reason_whatever_a_strategy_says():
    found = stays.checked_moves(cluster(), moved(name(1), name(2)))
    assert [move.reason for move in found] == [Reason.TAKEN, Reason.BUNDLE_EXCLUDED]
    left_out = cluster()
    drained = [each._replace(left_out=Reason.DRAINING) for each in left_out.brokers if each.broker == "a:1"]
    left_out = replace(left_out, brokers=[*drained, left_out.brokers[1]])
    assert [move.reason for move in stays.checked_moves(left_out, moved(name(1)))] == [Reason.DRAINING]


OWNED: Any = {"a": {name(1): 20.0, name(2): 20.0, name(4): 20.0}, "b": {name(3): 5.0}, "c": {}}
DRAINS = Drains(brokers={"a:1": Drain(at=NOW, by="ada", reason="disks")}).model_dump(mode="json")
RETURNING = Roll(id="f", order=("c:1",), turn_at=NOW, phase=Phase.RETURNING, home=(name(1), name(2)))


@pytest.mark.parametrize("overruled", [(), ("exclusions",)], ids=["excluded", "overruled"])
def test_an_excluded_bundle_stays_unless_a_person_overrules_it(tmp_path, overruled):
    snapshots = Snapshots(tmp_path, OWNED, excluded_bundles=[name(1)])
    form: Any = {"overrule": overruled, "reason": "a test"} if overruled else {}
    found = snapshots.show(action="unload", bundles=["t/n"], destination="c:1", **form)[1]
    assert found[name(1)] == ("c:1" if overruled else "bundle_excluded")
    assert found[name(2)] == "c:1"


@pytest.mark.parametrize("settings", [{}, {"move_system_bundles": True}], ids=["default", "may move"])
def test_system_bundles_move_only_if_a_setting_lets_them(tmp_path, settings):
    system, heartbeat = name(8, "pulsar/system"), name(9, "pulsar/a:1")
    snapshots = Snapshots(tmp_path, {"a": {system: 20.0, heartbeat: 20.0}, "b": {}, "c": {}}, **settings)
    form: Any = {"overrule": ["exclusions"], "reason": "a test"}
    found = snapshots.show(action="unload", bundles=[system, heartbeat], destination="c:1", **form)[1]
    assert found == {system: "c:1" if settings else "system_namespace", heartbeat: "system_namespace"}


@pytest.mark.parametrize("source", ["strategy", "drain", "returns", "filling"])
def test_an_excluded_bundle_stays_for_every_source(tmp_path, source):
    eager: Any = {"hit_count_high": 1, "min_unload_throughput": 0} if source == "strategy" else {}
    snapshots = Snapshots(tmp_path, OWNED, excluded_bundles=[name(1)], fill_new_brokers=source == "filling", **eager)
    snapshots.started = {"c:1": timedelta(minutes=5)} if source == "filling" else {}
    before: Any = {"drain": {"drains": DRAINS}, "returns": {"roll": RETURNING.model_dump(mode="json")}}.get(source, {})
    run = RunInput.read(snapshots.take(**before).uri)
    run.new_means_file.write_table(table(bundle_columns.update_means(run.read_table("bundles").to_pylist(), []), MEANS))

    made = plan_run(run, RunBundles(run, lambda: run.new_means_file)) if source == "strategy" else planned(run)
    plan_files.write_run_plan(run, made)

    found = fates(run.folder)
    assert found.pop(name(1), "bundle_excluded") == "bundle_excluded"
    assert {"b:1", "c:1"} & set(found.values()), "other bundles move"
