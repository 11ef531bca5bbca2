from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk.exceptions import AirflowFailException
from starlette.responses import JSONResponse
from tests.airflow_context import MemoryState
from tests.include.pulsar_rebalancer.admin.scripted_broker import TOKEN, brokers
from tests.plugins.pulsar_rebalancer_airflow.operators.control_scene import control

from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.errors import AdminError
from pulsar_simulator.faults import FaultKind

if TYPE_CHECKING:
    from pulsar_rebalancer.storage.layout import ClusterStorage
    from pulsar_simulator.serve import Running

SHEDDING = "loadBalancerSheddingEnabled"


def act(storage: ClusterStorage, action: str, reason: str = "test", mode: str = "auto") -> Any:
    settings = Settings.model_validate({"connection": "pulsar_test", "mode": mode})
    params = {"action": action, "reason": reason}
    return control(storage, MemoryState(), settings, params, timeout_seconds=0)["shedding"]


def changes(storage: ClusterStorage) -> list[dict[str, Any]]:
    return [(storage.state / name).read_json() for name in storage.state.names() if name.startswith("change-")]


def test_there_and_back(served: Running, storage: ClusterStorage) -> None:
    brokers = served.cluster.active_brokers()

    assert act(storage, "hand_back", "new release") == dict.fromkeys(brokers, "true")
    assert served.cluster.configuration.values() == {SHEDDING: "true"}
    assert act(storage, "take_over", "release is fine") == dict.fromkeys(brokers, "false")
    assert served.cluster.configuration.values() == {SHEDDING: "false"}

    # Whoever hands back has what is under way stopped: two that move bundles would work against each other.
    assert storage.control.read_json()["stop"]["reason"] == "new release"
    back, over = changes(storage)
    names = [name.rpartition("-")[2] for name in storage.state.names() if name.startswith("change-")]
    assert names == ["hand_back.json", "take_over.json"]
    assert (back["action"], back["by"], back["reason"], back["outcome"]) == ("hand_back", "ada", "new release", "taken")
    assert (back["setting"], back["value"]) == (SHEDDING, "true")
    assert (back["before"], back["after"]) == (dict.fromkeys(brokers, "false"), dict.fromkeys(brokers, "true"))
    assert (over["before"], over["after"]) == (back["after"], back["before"])


def test_show_reads_every_broker_and_changes_nothing(served: Running, storage: ClusterStorage) -> None:
    assert act(storage, "show", "") == dict.fromkeys(served.cluster.active_brokers(), "false")
    assert served.cluster.configuration.values() == {}
    assert not changes(storage)


@pytest.mark.parametrize("action", ["take_over", "hand_back"])
def test_a_change_needs_a_reason(served: Running, storage: ClusterStorage, action: str) -> None:
    with pytest.raises(AirflowFailException, match="reason"):
        act(storage, action, "  ")

    assert served.cluster.configuration.values() == {}
    assert not changes(storage)


def test_a_broker_that_did_not_take_the_value_is_named(served: Running, storage: ClusterStorage) -> None:
    odd, *others = served.cluster.active_brokers()
    served.cluster.faults.add(FaultKind.OTHER_CONFIGURATION, broker=odd, values={SHEDDING: "true"})

    with pytest.raises(AirflowFailException, match="setting_not_taken") as refused:
        act(storage, "take_over")

    assert f"{odd} says true" in str(refused.value)
    assert not any(broker in str(refused.value) for broker in others)
    (change,) = changes(storage)
    assert change["outcome"] == "setting_not_taken"
    assert change["after"] == {odd: "true", **dict.fromkeys(others, "false")}


def test_a_broker_that_cannot_be_asked_did_not_take_it(served: Running, storage: ClusterStorage) -> None:
    silent = served.cluster.active_brokers()[-1]
    served.cluster.faults.add(FaultKind.DEAD, broker=silent)

    with pytest.raises(AirflowFailException, match=rf"{silent} says \[unreachable\]"):
        act(storage, "take_over")


def test_brokers_that_take_it_a_moment_later_are_waited_for(
    served: Running, storage: ClusterStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulsar_rebalancer.admin.builtin_shedding._SECONDS_BETWEEN_READS", 0.01)
    late = served.cluster.active_brokers()[0]
    # The first read is the one before the change.
    served.cluster.faults.add(FaultKind.OTHER_CONFIGURATION, broker=late, values={SHEDDING: "true"}, times=4)
    settings = Settings.model_validate({"connection": "pulsar_test"})
    params = {"action": "take_over", "reason": "test"}

    found = control(storage, MemoryState(), settings, params, timeout_seconds=60)

    assert set(found["shedding"].values()) == {"false"}


@pytest.mark.parametrize("action", ["take_over", "hand_back"])
def test_a_read_only_connection_is_refused_before_anything_is_sent(
    served: Running, storage: ClusterStorage, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    document = json.loads(connection(served))
    document["extra"] = {"read_only": True}
    monkeypatch.setenv("AIRFLOW_CONN_PULSAR_TEST", json.dumps(document))

    with pytest.raises(AirflowFailException, match="read_only"):
        act(storage, action)

    assert served.cluster.configuration.values() == {}
    assert not changes(storage)
    assert not storage.control.exists()
    assert set(act(storage, "show").values()) == {"false"}


def connection(served: Running, token: str | None = None) -> str:
    host = ",".join(url.removeprefix("http://") for url in served.urls)
    return json.dumps({"conn_type": "pulsar_admin", "host": host, "password": token or served.token})


def test_credentials_without_the_right_are_refused_and_noted(
    served: Running, storage: ClusterStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_PULSAR_TEST", connection(served, served.user_token))

    with pytest.raises((AirflowFailException, AdminError), match=r"forbidden|unauthorized"):
        act(storage, "hand_back")

    assert served.cluster.configuration.values() == {}
    (change,) = changes(storage)
    assert change["outcome"] in ("forbidden", "unauthorized")
    assert "after" not in change


def test_an_unknown_action_is_refused(served: Running, storage: ClusterStorage) -> None:
    with pytest.raises(AirflowFailException, match=r"action.*give_up"):
        act(storage, "give_up")


def test_a_mode_that_moves_nothing_is_said(
    served: Running, storage: ClusterStorage, caplog: pytest.LogCaptureFixture
) -> None:
    act(storage, "take_over", mode="observe")

    assert "no bundles are moved" in caplog.text


def test_an_error_has_no_character_that_hides_or_forges_text(
    monkeypatch: pytest.MonkeyPatch, storage: ClusterStorage
) -> None:
    hidden = "\x1b[31m\x00\u202e\u3164\u034f\u200b"
    with brokers(1) as (broker,):
        broker.on("GET", "/admin/v2/brokers", JSONResponse({"reason": f"no{hidden}way"}, 403))
        connection = {"conn_type": "pulsar_admin", "host": broker.id, "password": TOKEN}
        monkeypatch.setenv("AIRFLOW_CONN_PULSAR_TEST", json.dumps(connection))

        with pytest.raises(AirflowFailException, match=r"answered 403, no \[31m way") as failed:
            act(storage, "take_over")

    assert str(failed.value).isprintable()
    assert not {"\u3164", "\u034f"} & set(str(failed.value))
