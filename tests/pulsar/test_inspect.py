"""`inspect` on real brokers: it reads what they answer, finds a topic where they have it, and moves nothing."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.patience import awaited
from tests.pulsar.admin import Admin, topics_in_bundles
from tests.pulsar.conftest import ClusterFactory
from tests.pulsar.load import Load

from pulsar_rebalancer.command.__main__ import main
from pulsar_rebalancer.reasons import Reason

NAMESPACE = "tests/inspect"


@pytest.mark.parametrize(
    ("version", "defaults"),
    [
        ("pulsar_501", {"shedder": "AvgShedder", "placement": "AvgShedder"}),
        ("pulsar_408", {"shedder": "ThresholdShedder", "placement": "LeastLongTermMessageRate"}),
    ],
)
def test_inspect(
    version: str,
    defaults: dict[str, str],
    request: pytest.FixtureRequest,
    clusters: ClusterFactory,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    cluster = clusters(request.getfixturevalue(version), 2)
    with Admin(cluster) as admin:
        topics = [topic for (topic,) in topics_in_bundles(NAMESPACE, admin.create_namespace(NAMESPACE, 2), 1).values()]
        with Load(cluster, dict.fromkeys(topics, 20.0), tmp_path / "load.log") as load:
            load.start()
            owners = {topic: admin.look_up(topic) for topic in topics}

            looked: dict[str, Any] = {}

            def has_load() -> bool:
                main(["inspect", cluster.web_url(0), "--json", "--topic", topics[0]])
                looked.update(json.loads(capsys.readouterr().out))
                return bool(looked["topic"][0]["broker"] and looked["topic"][0]["load"])

            awaited(has_load)
            assert {topic: admin.look_up(topic) for topic in topics} == owners
    assert {each["broker"] for each in looked["brokers"]} == set(cluster.broker_ids)
    assert all(each["score"] is not None for each in looked["brokers"])
    assert looked["topic"][0]["broker"] == owners[topics[0]]
    assert "msg/s" in looked["topic"][0]["load"]
    reasons = {each["reason"] for each in looked["findings"]}
    assert Reason.JUST_STARTED in reasons
    # Pulsar's defaults before 5.0.
    assert (Reason.NOT_RECOMMENDED in reasons) == (version == "pulsar_408")
    assert looked["configured"].items() >= {"manager": "ModularLoadManagerImpl", **defaults}.items()
