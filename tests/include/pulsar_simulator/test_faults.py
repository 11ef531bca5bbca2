"""Every fault as a client sees it, over real HTTP."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from pulsar_simulator.faults import KINDS, Fault, FaultKind, Faults
from pulsar_simulator.refusal import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from pulsar_simulator.serve import Running

REPORT = "/admin/v2/broker-stats/load-report"
BROKERS = "/admin/v2/brokers"


def ids(served: Running) -> list[str]:
    return [broker.broker_id for broker in served.cluster.membership.brokers]


def busy(served: Running) -> tuple[str, str, str]:
    """A bundle with traffic, its owner, one of its topics."""
    cluster = served.cluster
    for i, bundle in enumerate(cluster.topology.bundles):
        owner = cluster.owner(bundle)
        if owner and cluster.traffic.active[i]:
            return bundle, owner, cluster.topology.topics(i)[0]
    raise LookupError("no bundle with traffic")


# connections


def test_silent_accepts_and_never_answers(served: Running, http: httpx.Client) -> None:
    served.cluster.faults.add("silent", ids(served)[1])
    with pytest.raises(httpx.ReadTimeout):
        http.get(f"{served.urls[1]}{BROKERS}", timeout=0.3)
    assert http.get(f"{served.urls[0]}{BROKERS}").status_code == 200
    served.cluster.faults.clear("silent")
    assert http.get(f"{served.urls[1]}{BROKERS}").status_code == 200


def test_slow_answers_later_than_the_client_waits(served: Running, http: httpx.Client) -> None:
    served.cluster.faults.add("slow", ids(served)[1], amount=1.5)
    with pytest.raises(httpx.ReadTimeout):
        http.get(f"{served.urls[1]}{BROKERS}", timeout=0.2)
    answer = http.get(f"{served.urls[1]}{BROKERS}", timeout=60)
    assert answer.status_code == 200
    assert answer.elapsed.total_seconds() >= 1.5


def test_reset_closes_the_connection_without_an_answer(served: Running, http: httpx.Client) -> None:
    served.cluster.faults.add("reset", ids(served)[1], path="/load-report")
    with pytest.raises((httpx.ReadError, httpx.RemoteProtocolError)):
        http.get(f"{served.urls[1]}{REPORT}")
    assert http.get(f"{served.urls[1]}{BROKERS}").status_code == 200


def test_dead_refuses_while_the_others_still_list_it(served: Running, http: httpx.Client) -> None:
    broker, url = ids(served)[1], served.urls[1]
    assert http.get(f"{url}{BROKERS}").status_code == 200
    served.cluster.faults.add("dead", broker)
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}{BROKERS}", headers=served.headers)
    with pytest.raises(httpx.TransportError):  # the connection that was kept alive is gone too
        http.get(f"{url}{BROKERS}")
    assert broker in http.get(f"{served.urls[0]}{BROKERS}").json()
    served.cluster.faults.clear()
    assert http.get(f"{url}{BROKERS}").status_code == 200


def test_a_killed_broker_refuses_until_it_is_started(served: Running, http: httpx.Client) -> None:
    broker = ids(served)[2]
    killed = http.post(f"{served.urls[0]}/simulation/brokers/{broker}/kill")
    assert killed.status_code == 204
    with pytest.raises(httpx.ConnectError):
        http.get(f"{served.urls[2]}{BROKERS}")
    redirect = http.get(f"{served.urls[0]}/admin/v2/brokers/simulated/{broker}/ownedNamespaces")
    assert redirect.headers["location"].startswith(served.urls[2])
    served.cluster.advance(10)
    assert broker not in http.get(f"{served.urls[0]}{BROKERS}").json()
    assert http.post(f"{served.urls[0]}/simulation/brokers/{broker}/start").status_code == 204
    assert broker in http.get(f"{served.urls[2]}{BROKERS}").json()
    owned = http.get(f"{served.urls[2]}/admin/v2/brokers/simulated/{broker}/ownedNamespaces").json()
    assert list(owned) == [f"pulsar/{broker}/0x00000000_0xffffffff"]


# answers


def _status(code: int, text: str) -> Callable[[httpx.Response], bool]:
    return lambda answer: answer.status_code == code and text in answer.text


def _no_json(answer: httpx.Response) -> bool:
    try:
        answer.json()
    except ValueError:
        return answer.status_code == 200
    return False


def _json(check: Callable[[dict[str, Any]], bool]) -> Callable[[httpx.Response], bool]:
    return lambda answer: answer.status_code == 200 and check(answer.json())


ANSWERS: dict[str, Callable[[httpx.Response], bool]] = {
    "unauthorized": _status(401, "<html>"),
    "forbidden": _status(403, '"reason"'),
    "error_500": _status(500, "UnsupportedOperationException"),
    "null_answer": lambda answer: answer.text == "null",
    "garbage": _no_json,
    "half_json": lambda answer: _no_json(answer) and answer.text.startswith('{"webServiceUrl"'),
    "huge_answer": lambda answer: len(answer.content) > 60_000_000 and list(answer.json()) == ["padding"],
    "nan_usage": _json(lambda report: report["cpu"]["usage"] == "NaN"),
    "bare_nan": _json(lambda report: math.isnan(report["cpu"]["usage"])),
    "negative_usage": _json(lambda report: report["cpu"]["usage"] == -1),
    "negative_rate": _json(lambda report: min(s["msgRateIn"] for s in report["lastStats"].values()) < 0),
    "huge_count": _json(lambda report: max(s["consumerCount"] for s in report["lastStats"].values()) == 2**62),
    "missing_field": _json(lambda report: "cpu" not in report),
    "over_limit": _json(lambda report: report["cpu"]["usage"] == 3 * report["cpu"]["limit"]),
    "zero_limit": _json(lambda report: report["bandwidthIn"]["limit"] == report["bandwidthOut"]["limit"] == 0),
    "stale_last_update": _json(lambda report: report["lastUpdate"] == 1_800_000_000_000 - 3_600_000),
    "future_clock": _json(lambda report: report["lastUpdate"] == 1_800_000_000_000 + 3_600_000),
}


@pytest.mark.parametrize("kind", list(ANSWERS))
def test_a_broker_that_answers_wrongly(served: Running, http: httpx.Client, kind: str) -> None:
    looks_wrong = ANSWERS[kind]
    served.cluster.faults.add(kind, ids(served)[1])
    assert looks_wrong(http.get(f"{served.urls[1]}{REPORT}"))
    assert not looks_wrong(http.get(f"{served.urls[0]}{REPORT}"))
    served.cluster.faults.clear()
    assert not looks_wrong(http.get(f"{served.urls[1]}{REPORT}"))


def test_a_broker_that_answers_for_another(served: Running, http: httpx.Client) -> None:
    served.cluster.faults.add("wrong_broker", ids(served)[1])
    assert http.get(f"{served.urls[1]}{REPORT}").json()["webServiceUrl"] == served.urls[2]
    assert http.get(f"{served.urls[2]}{REPORT}").json()["webServiceUrl"] == served.urls[2]


def test_lies_add_up(served: Running, http: httpx.Client) -> None:
    for kind in ("zero_limit", "stale_last_update"):
        served.cluster.faults.add(kind)
    served.cluster.faults.add("missing_field", target="lastStats")
    report = http.get(f"{served.urls[3]}{REPORT}").json()
    assert report["bandwidthIn"]["limit"] == 0
    assert report["lastUpdate"] < 1_800_000_000_000
    assert "lastStats" not in report


def test_any_answer_can_be_garbage_when_a_path_says_so(served: Running, http: httpx.Client) -> None:
    served.cluster.faults.add("garbage", ids(served)[0], path="/brokers", times=1)
    assert _no_json(http.get(f"{served.urls[0]}{BROKERS}"))
    assert http.get(f"{served.urls[0]}{BROKERS}").json() == ids(served)


def test_a_redirect_to_a_stranger(served: Running, http: httpx.Client) -> None:
    bundle, owner, _ = busy(served)
    served.cluster.faults.add("redirect_to_stranger", owner, target="http://198.51.100.1:8080")
    answer = http.put(f"http://{owner}/admin/v2/namespaces/{bundle}/unload")
    assert answer.status_code == 307
    assert answer.headers["location"] == f"http://198.51.100.1:8080/admin/v2/namespaces/{bundle}/unload"
    assert served.cluster.owner(bundle) == owner


def test_redirects_in_a_circle(served: Running, http: httpx.Client) -> None:
    for broker in ids(served)[1:3]:
        served.cluster.faults.add("redirect_circle", broker)
    path = f"/admin/v2/brokers/simulated/{ids(served)[1]}/ownedNamespaces"
    there = http.get(f"{served.urls[1]}{path}")
    assert there.headers["location"] == f"{served.urls[2]}{path}"
    back = http.get(there.headers["location"])
    assert back.headers["location"] == f"{served.urls[1]}{path}"


# the cluster


def test_two_owners_list_the_same_bundle(served: Running, http: httpx.Client) -> None:
    bundle, owner, _ = busy(served)
    other = next(broker for broker in ids(served) if broker != owner)
    served.cluster.faults.add("two_owners", other, bundle=bundle)
    for broker in (owner, other):
        assert bundle in http.get(f"http://{broker}/admin/v2/brokers/simulated/{broker}/ownedNamespaces").json()
        report = http.get(f"http://{broker}{REPORT}").json()
        assert bundle in report["lastStats"]
        assert report["bundles"].count(bundle) == 1
    assert served.cluster.owner(bundle) == owner


def test_a_broker_listed_twice(served: Running, http: httpx.Client) -> None:
    served.cluster.faults.add("listed_twice", ids(served)[2])
    assert http.get(f"{served.urls[0]}{BROKERS}").json().count(ids(served)[2]) == 2


def test_a_broker_that_is_not_listed(served: Running, http: httpx.Client) -> None:
    served.cluster.faults.add("not_listed", ids(served)[2])
    assert http.get(f"{served.urls[2]}{BROKERS}").json() == [i for i in ids(served) if i != ids(served)[2]]
    served.cluster.faults.add("not_listed")
    assert http.get(f"{served.urls[0]}{BROKERS}").json() == []


def test_a_broker_whose_traffic_is_not_that_of_its_bundles(served: Running, http: httpx.Client) -> None:
    _, owner, _ = busy(served)
    served.cluster.faults.add("unaccounted", owner, amount=3)
    report = http.get(f"http://{owner}{REPORT}").json()
    assert report["msgRateIn"] == pytest.approx(3 * sum(s["msgRateIn"] for s in report["lastStats"].values()))


def test_a_bundle_of_any_name(served: Running, http: httpx.Client) -> None:
    served.cluster.faults.add("odd_bundle", ids(served)[1], target="<b>/'")
    report = http.get(f"{served.urls[1]}{REPORT}").json()
    assert report["lastStats"]["<b>/'"]["msgRateIn"] == 0
    assert report["numBundles"] == len(report["bundles"]) == len(report["lastStats"])


def test_the_next_moves_of_a_bundle_go_astray(served: Running) -> None:
    cluster = served.cluster
    bundle, owner, topic = busy(served)
    target = next(broker for broker in ids(served) if broker != owner)
    cluster.faults.add("stray", bundle=bundle, times=2)
    landed = []
    for _ in range(3):
        cluster.unload(bundle, target)
        landed.append(cluster.lookup(topic) == target)
    assert landed == [False, False, True]


def test_a_destination_that_vanishes_after_it_was_accepted(served: Running, http: httpx.Client) -> None:
    cluster = served.cluster
    bundle, owner, topic = busy(served)
    target = next(broker for broker in ids(served)[1:] if broker != owner)
    cluster.faults.add("destination_vanishes", target, times=1)
    cluster.unload(bundle, target)
    with pytest.raises(Refusal, match="Connection refused"):
        cluster.lookup(topic)
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"http://{target}{BROKERS}", headers=served.headers)
    cluster.advance(10)
    assert cluster.owner(bundle) not in (None, target)


def test_a_new_leader_over_http(served: Running, http: httpx.Client) -> None:
    bundle, owner, _ = busy(served)
    target = next(broker for broker in ids(served) if broker != owner)
    served.cluster.unload(bundle, target)
    assert http.get(f"{served.urls[0]}/simulation/state").json()["affinities"] == {bundle: target}
    assert http.post(f"{served.urls[0]}/simulation/leader", json={"broker": ids(served)[3]}).status_code == 204
    state = http.get(f"{served.urls[0]}/simulation/state").json()
    assert state["leader"] == ids(served)[3]
    assert state["affinities"] == {}


def test_brokers_that_disagree_about_configuration(served: Running, http: httpx.Client) -> None:
    key = "loadBalancerAvgShedderLowThreshold"
    served.cluster.faults.add("other_configuration", ids(served)[1], values={key: "25"})
    found = [http.get(f"{url}{BROKERS}/configuration/runtime").json()[key] for url in served.urls]
    assert found == ["15", "25", "15", "15"]


# control over HTTP


def test_faults_are_switched_over_http_and_never_hide_the_switch(served: Running, http: httpx.Client) -> None:
    url, broker = served.urls[1], ids(served)[1]
    fault = {"kind": "reset", "broker": broker, "path": ""}
    assert http.post(f"{url}/simulation/faults", json=fault).json()["kind"] == "reset"
    with pytest.raises(httpx.TransportError):
        http.get(f"{url}{BROKERS}")
    assert [f["kind"] for f in http.get(f"{url}/simulation/state").json()["faults"]] == ["reset"]
    assert http.delete(f"{url}/simulation/faults", params={"kind": "reset"}).status_code == 204
    assert http.get(f"{url}{BROKERS}").status_code == 200


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("faults", {"kind": "nonsense"}),
        ("faults", {"kind": "slow", "colour": "red"}),
        ("faults", {"kind": "slow", "amount": "long"}),
        ("faults", {"kind": "slow", "amount": math.nan}),
        ("faults", {"kind": "slow", "amount": -1}),
        ("faults", {"kind": "slow", "amount": 10**4000}),
        ("faults", {"kind": "two_owners", "bundle": ["acme/orders/0x00000000_0xffffffff"]}),
        ("faults", {"kind": "odd_bundle", "target": "\ud800"}),
        ("faults", {"kind": "other_configuration", "values": {"a": [[]]}}),
        ("load", {"factor": -1}),
        ("load", {"factor": "much"}),
        ("load", {"factor": 10**4000}),
        ("load", {"factor": 1, "broker": {}}),
        ("load", [1]),
        ("leader", {"broker": ["127.0.0.1:1"]}),
    ],
)
def test_wrong_control_calls_are_refused(served: Running, http: httpx.Client, path: str, body: object) -> None:
    answer = http.post(f"{served.urls[0]}/simulation/{path}", content=json.dumps(body))
    assert answer.status_code == 400
    assert answer.json()["reason"]
    assert http.get(f"{served.urls[0]}/simulation/state").json()["faults"] == []


def test_bodies_that_are_nested_too_deeply_are_refused(served: Running, http: httpx.Client) -> None:
    split = "/admin/v2/namespaces/acme/orders/0x00000000_0xffffffff/split"
    deep = "[" * 200_000
    for method, path in (("POST", "/simulation/faults"), ("PUT", split)):
        assert http.request(method, f"{served.urls[0]}{path}", content=deep).status_code == 400


def test_faults_of_unknown_brokers_and_bundles_are_refused(served: Running, http: httpx.Client) -> None:
    for fault in ({"broker": "127.0.0.1:1"}, {"bundle": "acme/none/0x00000000_0xffffffff"}):
        answer = http.post(f"{served.urls[0]}/simulation/faults", json={"kind": "two_owners", **fault})
        assert answer.status_code == 404
    assert served.cluster.faults.all() == []


def test_load_is_changed_over_http(served: Running, http: httpx.Client) -> None:
    state = http.get(f"{served.urls[0]}/simulation/state").json()
    rates = {row["broker"]: row["msg_rate"] for row in state["brokers"]}
    bundle, owner, _ = busy(served)
    assert http.post(f"{served.urls[0]}/simulation/load", json={"factor": 2, "broker": owner}).status_code == 204
    after = {r["broker"]: r["msg_rate"] for r in http.get(f"{served.urls[0]}/simulation/state").json()["brokers"]}
    assert after == {b: pytest.approx(rate * (2 if b == owner else 1)) for b, rate in rates.items()}
    assert state["owners"][bundle] == owner


# the switches themselves


def test_every_kind_is_described() -> None:
    assert set(KINDS) == set(FaultKind)


def test_a_fault_ends_after_its_times_and_one_at_a_time() -> None:
    faults = Faults()
    faults.add("slow", "a", times=2)
    faults.add("slow", amount=9)
    taken = [faults.take(FaultKind.SLOW, broker="a") for _ in range(3)]
    assert [fault.size for fault in taken if fault] == [1.0, 1.0, 9.0]
    assert faults.all() == [Fault(FaultKind.SLOW, amount=9)]


def test_faults_are_cleared_by_kind_and_broker() -> None:
    faults = Faults()
    for kind in ("slow", "reset"):
        for broker in ("a", "b"):
            faults.add(kind, broker)
    faults.clear("slow", "a")
    assert [(f.kind.value, f.broker) for f in faults.all()] == [("slow", "b"), ("reset", "a"), ("reset", "b")]
    faults.clear(broker="b")
    assert [(f.kind.value, f.broker) for f in faults.all()] == [("reset", "a")]
    faults.clear()
    assert faults.all() == []
