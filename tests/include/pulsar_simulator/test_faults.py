import httpx
import pytest

from pulsar_simulator.faults import FAULT_INFOS, FaultKind
from pulsar_simulator.serve import RunningCluster

BROKERS = "/admin/v2/brokers"


def ids(served: RunningCluster) -> list[str]:
    return [broker.broker_id for broker in served.cluster.membership.brokers]


# connections


# answers


# the cluster


# control over HTTP


def test_faults_are_switched_over_http_and_never_hide_the_switch(served: RunningCluster, http: httpx.Client) -> None:
    url, broker = served.urls[1], ids(served)[1]
    fault = {"kind": "reset", "broker": broker, "path": ""}
    assert http.post(f"{url}/simulation/faults", json=fault).json()["kind"] == "reset"
    with pytest.raises(httpx.TransportError):
        http.get(f"{url}{BROKERS}")
    assert [f["kind"] for f in http.get(f"{url}/simulation/state").json()["faults"]] == ["reset"]
    assert http.delete(f"{url}/simulation/faults", params={"kind": "reset"}).status_code == 204
    assert http.get(f"{url}{BROKERS}").status_code == 200


# the switches themselves


def test_every_kind_is_described() -> None:
    assert set(FAULT_INFOS) == set(FaultKind)
