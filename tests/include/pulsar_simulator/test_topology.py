from __future__ import annotations

import zlib

import pytest

from pulsar_simulator.refusal import Refusal
from pulsar_simulator.topology import Namespace, Topology, even_boundaries, range_text, topic_hash


@pytest.fixture
def topology() -> Topology:
    return Topology([Namespace("acme/shop", 16), Namespace("acme/two", 3, domains=("non-persistent",))])


def test_sixteen_ranges_as_pulsar_makes_them(topology: Topology) -> None:
    assert topology.bundles[:2] == ["acme/shop/0x00000000_0x10000000", "acme/shop/0x10000000_0x20000000"]
    assert topology.bundles[15] == "acme/shop/0xf0000000_0xffffffff"


def test_a_topic_lies_where_its_unsigned_crc32_says(topology: Topology) -> None:
    topic = "persistent://acme/shop/t30"
    position = zlib.crc32(topic.encode()) & 0xFFFFFFFF
    assert topic_hash(topic) == position
    assert topology.range_of(topology.of_topic(topic)) == range_text(*_bounds_around(position))


def _bounds_around(position: int) -> tuple[int, int]:
    lower = position - position % 0x10000000
    return lower, min(lower + 0x10000000, 0xFFFFFFFF)


def test_every_bundle_has_its_topics_and_they_hash_into_it(topology: Topology) -> None:
    for bundle in range(len(topology.bundles)):
        topics = topology.topics(bundle)
        assert len(topics) == 2
        assert {topology.of_topic(topic) for topic in topics} == {bundle}
    assert topology.topics(16)[0].startswith("non-persistent://acme/two/")


def test_uneven_division_covers_the_ring() -> None:
    assert even_boundaries(3) == (0, 0x55555555, 0xAAAAAAAA, 0xFFFFFFFF)


@pytest.mark.parametrize(
    ("bundle", "status", "text"),
    [
        ("nobody/none/0x00000000_0x10000000", 404, "Namespace not found"),
        ("acme/shop/0x00000000_0x20000000", 412, "Invalid upper boundary for bundle"),
        ("acme/shop/0x00000001_0x20000000", 412, "Invalid lower boundary for bundle"),
        ("acme/shop/abc", 500, "java.lang.IllegalArgumentException"),
    ],
)
def test_what_is_no_bundle_is_refused(topology: Topology, bundle: str, status: int, text: str) -> None:
    with pytest.raises(Refusal, match=text) as caught:
        topology.index(bundle)
    assert caught.value.status == status


def test_domains_take_turns_and_a_scalable_topic_has_four_segments() -> None:
    topology = Topology([Namespace("acme/shop", 4, topics_per_bundle=4, domains=("persistent", "segment"))])
    for bundle in range(4):
        assert [topic.partition(":")[0] for topic in topology.topics(bundle)] == ["persistent", "segment"] * 2
    for wrong in ("segment://acme/shop/t1", "segment://acme/shop/t1/bad-descriptor", "queue://acme/shop/t1"):
        with pytest.raises(Refusal) as caught:
            topology.of_topic(wrong)
        assert caught.value.status == 412
