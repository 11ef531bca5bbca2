from collections import Counter
from random import Random

import pytest
from tests.vectors.rows import brokers_of, bundles_of

from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.isolation import IsolationPolicy, Policies
from pulsar_rebalancer.run.bundle_columns import BundleSample
from pulsar_rebalancer.strategies import candidates as rules
from pulsar_rebalancer.strategies.candidates import PolicyFilter, latest_version_brokers

DOMAINS = {"a": "1", "b": "1", "c": "2"}


@pytest.mark.parametrize(
    ("spread", "domains", "expected"),
    [
        ({"a": 1}, {}, "bcd"),
        ({"a": 1}, DOMAINS, "cd"),
        ({"a": 1, "c": 1, "d": 1}, DOMAINS, "b"),
        ({"a": 2, "c": 1, "d": 2}, DOMAINS, "c"),
        ({"a": 1, "b": 1, "c": 2, "d": 3}, DOMAINS, "ab"),
        ({"a": 1, "b": 1, "c": 1}, {"a": "1"}, "a"),
    ],
)
def test_the_least_domain_comes_before_the_least_broker(spread, domains, expected):
    assert rules.filter_by_group("abcd", spread, domains) == list(expected)


def broker(name, **columns):
    return {"broker": name, "left_out": None, "topics": 0, "version": "4.2.4"} | columns


def bundle(owner, namespace, number=0, topics=10):
    return {"broker": owner, "bundle": f"{namespace}/0x{number}_0x{number + 1}", "topics": topics}


def over(policies, bundles, brokers=("a", "b", "c"), **settings):
    rows = [broker(row) if isinstance(row, str) else row for row in brokers]
    return PolicyFilter(policies, brokers_of(rows), bundles_of(bundles), Settings(**settings))


GROUPED = Policies(groups={"t/n": "g", "t/m": "g"})
HELD = [bundle("a", "t/n"), bundle("a", "t/n", 1), bundle("b", "t/m")]
FIRST = HELD[0]["bundle"]


@pytest.mark.parametrize("seed", range(60))
def test_candidates_are_those_that_the_rules_leave_one_after_the_other(seed):
    random = Random(seed)
    names = [f"b{number}" for number in range(random.randint(2, 9))]
    versions = {name: random.choice(("4.2.3", "4.2.4", "4.2.4", None if seed % 5 == 0 else "4.2.4")) for name in names}
    listed = [broker(name, version=versions[name]) for name in names]
    held = [bundle(random.choice(names), random.choice(("t/n", "t/m", "t/o")), number) for number in range(12)]
    policies = Policies(groups={"t/n": "g", "t/m": "g"} if seed % 2 else {})
    found = over(policies, held, listed, even_distribution=seed % 3 > 0, prefer_later_versions=seed % 4 > 0)
    owner = {row["bundle"]: row["broker"] for row in held}
    for row in held:
        name, namespace = row["bundle"], row["bundle"].rpartition("/")[0]
        serving = {name: Counter(b for n, b in owner.items() if n.startswith(name)) for name in ("t/n", "t/m", "t/o")}
        left = list(names)
        if namespace in policies.groups:
            left = rules.lowest_count_brokers(left, Counter([*serving["t/n"], *serving["t/m"]]))
        if seed % 3:
            left = rules.lowest_count_brokers(left, serving[namespace])
        if seed % 4:
            left = latest_version_brokers(left, versions)
        assert list(found.candidate_brokers(name)) == (left or names)
        owner[name] = random.choice(names)
        found.add_placement(BundleSample(row["broker"], name), owner[name])


@pytest.mark.parametrize(
    ("policies", "bundles", "brokers", "destination", "reason"),
    [
        (Policies(), HELD, "abc", "b", None),
        (Policies(), HELD, ("a", broker("b", left_out="just_started"), "c"), "b", "no_destination"),
        (Policies(), HELD, "abc", "gone", "no_destination"),
        (Policies(), HELD, ("a", broker("b", left_out="just_started")), "b", "policy_forbids"),
        (Policies(unknown={"t/n": "timeout"}), HELD, "abc", "b", "policy_unknown"),
        (
            Policies(isolation=(IsolationPolicy(name="p", primary=("b",)),)),
            HELD,
            ("a:1", "b:1", "c:1"),
            "b:1",
            "policy_forbids",
        ),
        (GROUPED, HELD, "abc", "c", None),
        (GROUPED, HELD, "abc", "b", "anti_affinity"),
        (GROUPED, [*HELD, bundle("c", "t/m", 1)], "abc", "c", "anti_affinity"),
    ],
)
def test_forbids(policies, bundles, brokers, destination, reason):
    found = over(policies, bundles, brokers)
    assert found.refusal_reason(FIRST, "a:1" if "a:1" in brokers else "a", destination) == reason


@pytest.mark.parametrize(
    ("namespaces", "domains", "reason"),
    [
        # a, b and c serve 1, 1 and 2 of the group; b would serve 2 and a none.
        ({"a": "n", "b": "m", "c": "op"}, "", "anti_affinity"),
        # a and b serve 2 and 1: the other way round it is as good.
        ({"a": "no", "b": "m", "c": "pq"}, "", None),
        # The namespace stays on a as well.
        ({"a": "nno", "b": "m", "c": "pq"}, "", "anti_affinity"),
        ({"a": "nn", "c": "m"}, "", None),
        # It is on b already.
        ({"a": "nn", "b": "nm"}, "", None),
        # a and b are in one failure domain, or b's other broker serves the group.
        ({"a": "nn", "c": "m"}, "112", None),
        ({"a": "n", "c": "m"}, "122", "anti_affinity"),
        ({"a": "no", "c": "m"}, "122", None),
    ],
)
def test_a_planned_destination_spreads_a_group_no_worse(namespaces, domains, reason):
    held = [bundle(owner, f"t/{name}", n) for owner, names in namespaces.items() for n, name in enumerate(names)]
    groups = {f"t/{name}": "g" for name in "mnopq"}
    policies = Policies(groups=groups, domains=dict(zip("abc", domains, strict=False)))
    assert over(policies, held, "abcd").refusal_reason(held[0]["bundle"], "a", "b") == reason


@pytest.mark.parametrize(
    ("topics", "reason"), [((0, 11, 0), "too_many_topics"), ((0, 10, 0), None), ((11, 11, 11), None)]
)
def test_a_planned_destination_keeps_to_the_ceiling_of_topics(topics, reason):
    rows = [broker(name, topics=count) for name, count in zip("abc", topics, strict=True)]
    assert over(Policies(), HELD, rows, max_broker_topics=10).refusal_reason(FIRST, "a", "b") == reason


def test_placed_bundles_count_for_later_ones():
    found = over(GROUPED, HELD, max_broker_topics=9)
    assert found.stay_reason(HELD[1]["bundle"], "a") is None
    first, second = bundles_of(HELD).of_broker("a")
    found.add_placement(first, "c")
    # The group now has a namespace on each of the three: nothing of it may leave, and the topics fill c.
    assert found.stay_reason(HELD[1]["bundle"], "a") == "anti_affinity"
    assert found.candidate_brokers("t/other/0x0_0x1") == ["a", "b"]
    # The last bundle of t/n leaves a as well, so a is free for the group.
    found.add_placement(second, "c")
    assert found.candidate_brokers(HELD[2]["bundle"]) == ["a"]


def test_filters_of_one_sample_share_its_counts_and_do_not_change_each_other():
    sample = bundles_of(HELD)
    one, other = (PolicyFilter(GROUPED, brokers_of([broker("a"), broker("b")]), sample, Settings()) for _ in range(2))
    moved = sample.find("a", FIRST)
    one.add_placement(moved, "b")
    one.add_placement(moved._replace(broker="b"), "a")
    one.add_placement(moved, "b")
    assert one._serving["t/n"] == {"a": 1, "b": 1}
    assert other._serving["t/n"] == {"a": 2}
    assert one._serving["t/m"] is other._serving["t/m"], "a dry run of a roll makes two filters for each broker"
