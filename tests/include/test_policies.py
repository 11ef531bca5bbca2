"""Isolation policies are read the way Java reads them, or not at all."""

import asyncio

import pytest

from pulsar_rebalancer.policies import parse_isolation, read_policies


def policy(namespaces=(), primary=()):
    return parse_isolation({"p": {"namespaces": list(namespaces), "primary": list(primary), "secondary": []}})[0]


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
        ("acme/(?!orders).*", "acme/orders", False),
        ("a|acme/orders", "acme/orders", True),
        ("acme/[^/]++", "acme/orders", True),
    ],
)
def test_the_whole_namespace_must_match(pattern, namespace, covered):
    assert policy(namespaces=[pattern]).covers(namespace) is covered


def test_brokers_match_by_host_without_the_port():
    assert policy(primary=["broker-1.*"]).reserves("broker-1.example:8080")
    assert not policy(primary=["broker-1.example:8080"]).reserves("broker-1.example:8080")


@pytest.mark.parametrize("pattern", ["(", "*", r"\p{Alpha}+", r"\Qa\E", "[a[bc]]", "[a-z&&[^b]]", "[a--b]", "(?<n>a)"])
def test_a_pattern_that_java_tells_otherwise_is_refused(pattern):
    with pytest.raises(ValueError, match="isolation policy 'p': namespaces"):
        policy(namespaces=[pattern])


@pytest.mark.parametrize("document", [{"p": None}, {"p": []}, {"p": {"namespaces": "a"}}, {"p": {"primary": [1]}}])
def test_another_shape_is_refused(document):
    with pytest.raises(ValueError, match="isolation policy 'p'"):
        parse_isolation(document)


class Calls:
    """Answers of a cluster whose brokers have hosts of their own, which loopback cannot show."""

    def __init__(self, policies, groups=()):
        self.policies, self.groups, self.asked = policies, dict(groups), []

    async def cluster_name(self):
        return "east"

    async def isolation_policies(self, cluster):
        return self.policies if cluster == "east" else {}

    async def anti_affinity_group(self, namespace):
        self.asked.append(namespace)
        return self.groups.get(namespace, "")


def policies_of(calls, brokers=(), bundles=()):
    return asyncio.run(read_policies(calls, cluster="", brokers=list(brokers), bundles=list(bundles)))


ISOLATED = {"vip": {"namespaces": ["vip/.*"], "primary": ["gold-.*"], "secondary": ["silver-.*"]}}


def test_primary_brokers_are_reserved_secondary_ones_are_not():
    found = policies_of(Calls(ISOLATED), brokers=["gold-1:8080", "silver-1:8080", "iron-1:8080"])
    assert found.reserved == {"gold-1:8080": "vip"}


def test_where_every_broker_is_primary_none_is_set_apart():
    assert policies_of(Calls(ISOLATED), brokers=["gold-1:8080", "gold-2:8080"]).reserved == {}


def test_only_namespaces_of_users_are_asked_about_and_once():
    whole = "0x00000000_0xffffffff"
    calls = Calls(ISOLATED, {"acme/a": "spread"})
    names = ["vip/x", "acme/a", "acme/a", "acme/b", "pulsar/system", "pulsar/b-1:8080", "pulsar/east/b-1:8080", "odd"]
    found = policies_of(calls, bundles=[f"{name}/{whole}" for name in names])
    assert calls.asked == ["acme/a", "acme/b"]
    assert found.namespaces == {"vip/x": "isolation", "acme/a": "anti_affinity"}
