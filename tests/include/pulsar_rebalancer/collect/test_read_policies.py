import asyncio
from collections import Counter

import pytest

from pulsar_rebalancer.collect.broker_settings import read_isolation, read_policies
from pulsar_rebalancer.errors import AdminError
from pulsar_rebalancer.isolation import Policies, parse_isolation
from pulsar_rebalancer.reasons import Reason

WHOLE = "0x00000000_0xffffffff"


def policy(**parts):
    return parse_isolation({"p": {"namespaces": [], "primary": [], "secondary": []} | parts})[0]


def failover(min_limit, policy_type="min_available"):
    return {"policy_type": policy_type, "parameters": {"min_limit": min_limit, "usage_threshold": "100"}}


@pytest.mark.parametrize(
    ("pattern", "namespace", "covered"),
    [
        ("acme/orders", "acme/orders", True),
        ("acme/orders", "acme/orders2", False),
        ("orders", "acme/orders", False),
        ("acme/.*", "acme/orders", True),
        (r"acme/\w+-\d{2}", "acme/orders-07", True),
        (r"acme/\d", "acme/٣", False),
        ("(?i)ACME/.*", "acme/orders", True),
        ("a|acme/orders", "acme/orders", True),
        ("(acme|shop)/(orders|carts)-[0-9]+", "shop/carts-12", True),
        ("(acme-)*acme/.*", "acme-acme-acme/x", True),
        ("(acme-)*acme/.*", "acme-shop-acme/x", False),
        ("(?i)(ac|me)+/.*", "ACME/x", True),
        (".*-.*-.*-.*/.*", "a-b-c-d/e", True),
        (".*-.*-.*-.*/.*", "a-b-c/d-e", False),
        (r"(\w+\.)+\w+/\d{2}", "a.b.c/07", True),
        (r"(\w+\.)+\w+/\d{2}", "a.b.c/\u0660\u0667", False),
    ],
)
def test_the_whole_namespace_must_match(pattern, namespace, covered):
    found = policy(namespaces=[pattern])
    assert found.covers(namespace) is covered
    assert found.problems == {}


def test_brokers_match_by_host_without_the_port():
    assert policy(primary=["broker-1.*"]).reserves("broker-1.example:8080")
    assert not policy(primary=["broker-1.example:8080"]).reserves("broker-1.example:8080")


@pytest.mark.parametrize(
    "pattern",
    [
        "(",
        "*",
        r"\p{Alpha}+",
        r"\Qa\E",
        "[a[bc]]",
        "[a-z&&[^b]]",
        "[a--b]",
        "(?<n>a)",
        "a)(b",
        "(?!a)b",
        "a++",
        r"(a)\1",
        "(?i)*",
        "(?i)é",
        "[:alpha:]]",
        "[[:alpha:]]",
        r"\101",
        r"\v",
    ],
)
def test_a_pattern_that_java_tells_otherwise_is_a_problem(pattern):
    found = policy(namespaces=["acme/.*", pattern])
    assert found.namespaces == ("acme/.*",)
    assert found.problems == {"namespaces": f"isolation policy 'p': namespaces: {pattern!r} is not a supported pattern"}


@pytest.mark.parametrize(
    ("given", "broken"),
    [
        (None, {"namespaces", "primary", "secondary", "auto_failover_policy"}),
        ([], {"namespaces", "primary", "secondary", "auto_failover_policy"}),
        ({"namespaces": "a"}, {"namespaces"}),
        ({"primary": [1]}, {"primary"}),
        ({"auto_failover_policy": failover("2", "other")}, {"auto_failover_policy"}),
        ({"auto_failover_policy": failover("many")}, {"auto_failover_policy"}),
        ({"auto_failover_policy": {"policy_type": "min_available"}}, {"auto_failover_policy"}),
        ({"auto_failover_policy": failover("2")}, set()),
    ],
)
def test_another_shape_is_a_problem_of_its_part(given, broken):
    (found,) = parse_isolation({"p": given})
    assert found.problems.keys() == broken


@pytest.mark.parametrize(
    ("min_limit", "brokers", "candidates"),
    [
        ("0", ["silver-1:1"], []),
        ("1", ["gold-1:1", "silver-1:1", "iron-1:1"], ["gold-1:1"]),
        ("2", ["gold-1:1", "silver-1:1", "iron-1:1"], ["gold-1:1", "silver-1:1"]),
        ("2", ["gold-1:1", "gold-2:1", "silver-1:1"], ["gold-1:1", "gold-2:1"]),
    ],
)
def test_secondary_brokers_help_out_below_the_limit(min_limit, brokers, candidates):
    found = policy(primary=["gold-.*"], secondary=["silver-.*"], auto_failover_policy=failover(min_limit))
    assert found.allowed_brokers(brokers) == candidates


class Calls:
    """Answers of a cluster whose brokers have hosts of their own, which loopback cannot show."""

    def __init__(self, policies=None, groups=(), domains=None, failing=()):
        self.policies, self.groups, self.domains = policies or {}, dict(groups), domains or {}
        self.failing, self.asked = set(failing), []
        self.silent: set[str] = set()
        self.of_broker: Counter[str] = Counter()

    def fail(self, what):
        if what in self.failing:
            raise AdminError(Reason.FORBIDDEN, f"GET {what}: 403")

    async def cluster_name(self):
        self.fail("cluster")
        return "east"

    async def isolation_policies(self, cluster):
        self.fail("isolation")
        return self.policies if cluster == "east" else {}

    async def failure_domains(self, cluster):
        self.fail("domains")
        return self.domains if cluster == "east" else {}

    async def anti_affinity_group(self, namespace, broker):
        self.asked.append(namespace)
        self.of_broker[broker] += 1
        if broker in self.silent:
            raise AdminError(Reason.TIMEOUT, "no answer")
        self.fail(namespace)
        return self.groups.get(namespace, "")


BROKERS = ("gold-1:8080", "iron-1:8080", "silver-1:8080")
ISOLATED = {"vip": {"namespaces": ["vip/.*"], "primary": ["gold-.*"], "secondary": ["silver-.*"]}}


def read(calls, namespaces=("vip/x", "acme/a", "acme/b"), brokers=BROKERS, **given):
    bundles = [f"{name}/{WHOLE}" for name in namespaces]

    async def both() -> Policies:
        isolation = await read_isolation(calls)
        return await read_policies(calls, isolation, brokers=list(brokers), bundles=bundles, **given)

    return asyncio.run(both())


def reserved(policies, brokers=BROKERS):
    return {broker: name for broker in brokers if (name := policies.reserving_policy(broker))}


def test_primary_brokers_are_reserved_secondary_ones_are_not():
    assert reserved(read(Calls(ISOLATED))) == {"gold-1:8080": "vip"}


def test_where_every_broker_is_primary_each_is_its_policys():
    both = {"b": {"namespaces": ["b/.*"], "primary": ["b-.*"]}, "a": {"namespaces": ["a/.*"], "primary": [".*"]}}
    assert reserved(read(Calls(both)), ["a-1:1", "b-1:1"]) == {"a-1:1": "a", "b-1:1": "b"}


def test_only_namespaces_of_users_are_asked_about_and_once():
    calls = Calls(ISOLATED, {"acme/a": "spread", "vip/x": "spread"})
    names = ["vip/x", "acme/a", "acme/a", "acme/b", "pulsar/system", "pulsar/b-1:8080", "pulsar/east/b-1:8080", "odd"]
    found = read(calls, names)
    assert calls.asked == ["acme/a", "acme/b", "vip/x"]
    assert found.policy_kind_by_namespace(["vip/x", "acme/a", "acme/b"]) == {
        "vip/x": "isolation",
        "acme/a": "anti_affinity",
        "acme/b": None,
    }
    assert found.groups == {"vip/x": "spread", "acme/a": "spread"}
    assert (found.readable, found.problem) == (True, "")


DOMAINS = {"rack-1": {"brokers": ["gold-1:8080"]}, "rack-2": {"brokers": ["iron-1:8080", "silver-1:8080"]}, "odd": []}


def test_failure_domains_are_read_when_they_are_on_and_matter():
    grouped = {"acme/a": "spread"}
    assert read(Calls(groups=grouped, domains=DOMAINS), reads_failure_domains=True).domains == {
        "gold-1:8080": "rack-1",
        "iron-1:8080": "rack-2",
        "silver-1:8080": "rack-2",
    }
    assert read(Calls(groups=grouped, domains=DOMAINS)).domains == {}
    assert read(Calls(domains=DOMAINS, failing=["domains"]), reads_failure_domains=True).problem == ""


BAD = {"bad": {"namespaces": ["acme/a"], "primary": ["("]}}
BAD_NAMESPACES = {"bad": {"namespaces": ["("], "primary": ["none"]}}


@pytest.mark.parametrize(
    ("calls", "unknown", "readable", "said"),
    [
        (Calls(failing=["isolation"]), {"vip/x", "acme/a", "acme/b"}, False, "isolation policies cannot be read"),
        (Calls(failing=["cluster"]), {"vip/x", "acme/a", "acme/b"}, False, "isolation policies cannot be read"),
        (Calls(ISOLATED, failing=["acme/a"]), {"acme/a"}, True, "cannot be read, so bundles of acme/a stay: GET"),
        (
            Calls(ISOLATED, failing=["acme/a", "acme/b", "vip/x"]),
            {"vip/x", "acme/a", "acme/b"},
            False,
            "anti-affinity groups cannot be read, so bundles of acme/a, acme/b, vip/x stay",
        ),
        (
            Calls(ISOLATED, {"acme/a": "spread"}, failing=["domains"]),
            {"acme/a"},
            True,
            "failure domains cannot be read, so bundles of acme/a cannot move",
        ),
        # The bad policy may reserve any broker: only namespaces that another one rules know theirs.
        (Calls(ISOLATED | BAD), {"acme/a", "acme/b"}, True, "is not a supported pattern, so bundles of acme/a, acme/b"),
        # It may rule all namespaces that no earlier one rules.
        (Calls(ISOLATED | BAD_NAMESPACES), {"acme/a", "acme/b"}, True, "policy 'bad': namespaces: '('"),
        (Calls(BAD_NAMESPACES | ISOLATED), {"vip/x", "acme/a", "acme/b"}, False, "policy 'bad': namespaces: '('"),
        # Only the namespaces that it rules depend on its secondary brokers.
        (
            Calls(ISOLATED | {"bad": {"namespaces": ["acme/a"], "primary": ["iron.*"], "secondary": ["("]}}),
            {"acme/a"},
            True,
            "policy 'bad': secondary: '('",
        ),
    ],
    ids=["isolation", "name", "group", "groups", "domains", "primary", "namespaces", "first", "secondary"],
)
def test_unreadable_policy_alone_is_unknown(calls, unknown, readable, said):
    found = read(calls, reads_failure_domains=True)
    assert found.unknown.keys() == unknown
    assert set(found.policy_kind_by_namespace(unknown).values()) == {"unknown"}
    assert found.readable is readable
    assert said in found.problem
    if "vip" in calls.policies and "isolation" not in calls.failing:
        assert reserved(found)["gold-1:8080"] == "vip"


def test_brokers_share_the_questions_about_namespaces_and_another_is_asked_for_one_that_is_silent():
    namespaces = [f"acme/n{number:02}" for number in range(32)]
    calls = Calls(groups={"acme/n01": "spread"})
    calls.silent = {"b1:8080"}
    found = read(calls, namespaces, responding_brokers=[f"b{number}:8080" for number in range(20)])
    assert found.groups == {"acme/n01": "spread"}
    assert found.unknown == {}
    shares = {f"b{number}:8080": 4 for number in range(8)} | {"": 4}
    assert calls.of_broker == shares


def test_a_namespace_deleted_since_is_under_nothing():
    class Gone(Calls):
        async def anti_affinity_group(self, namespace, broker):
            raise AdminError(Reason.NOT_FOUND, "404")

    assert read(Gone()).unknown == {}


def test_a_name_too_long_to_be_matched_is_unknown():
    name = "acme/" + "x" * 500
    assert read(Calls(ISOLATED), [name, "acme/a"]).unknown.keys() == {name}
