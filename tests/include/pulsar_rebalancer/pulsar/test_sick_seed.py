"""A first host that accepts connections and is of no use, over HTTP to simulated brokers."""

from collections.abc import Iterator

import pytest
from pydantic import SecretStr

from pulsar_rebalancer.errors import AdminError
from pulsar_rebalancer.pulsar import AdminConnection, PulsarAdmin
from pulsar_simulator import scenario
from pulsar_simulator.cluster import Cluster
from pulsar_simulator.faults import FaultKind
from pulsar_simulator.serve import RunningCluster, serve

pytestmark = pytest.mark.anyio

REASONS = {FaultKind.SILENT: "timeout", FaultKind.RESET: "unreachable", FaultKind.ERROR_500: "server_error"}
ASKED_BY_A_GET = {FaultKind.SILENT: 1, FaultKind.RESET: 2, FaultKind.ERROR_500: 1}
"""A connection that breaks is tried once more."""
_MANY = 1000


class Scene:
    """Three brokers, of which the last ones are the connection's hosts; the first one leads."""

    def __init__(self, served: RunningCluster, kind: FaultKind) -> None:
        self.cluster, self.kind = served.cluster, kind
        self._urls, self._token = served.urls, served.token
        self.leader, self.sick, self.well = (broker.broker_id for broker in self.cluster.membership.brokers)
        self.bundle = self.cluster.owned_bundles(self.well)[0]

    def connect(self, *, both: bool = True) -> PulsarAdmin:
        seeds = tuple(self._urls[1 : 3 if both else 2])
        token = SecretStr(self._token)
        return PulsarAdmin(AdminConnection(seeds=seeds, token=token, read_timeout_s=1.0, unload_timeout_s=1.0))

    def fall_ill(self, broker: str | None) -> None:
        self.cluster.faults.add(self.kind, broker, path="", times=_MANY)

    @property
    def asked(self) -> int:
        (fault,) = self.cluster.faults.all()
        return _MANY - (fault.times or 0)


@pytest.fixture(params=REASONS)
def scene(request: pytest.FixtureRequest) -> Iterator[Scene]:
    cluster = Cluster(scenario.spec(brokers=3, bundles=12))
    cluster.clock.advance(300)
    with serve(cluster) as served:
        yield Scene(served, request.param)


async def test_a_read_asks_the_next_host_and_later_requests_start_there(scene: Scene) -> None:
    scene.fall_ill(scene.sick)
    async with scene.connect() as admin:
        assert await admin.brokers() == sorted((scene.leader, scene.sick, scene.well))
        assert await admin.leader() == scene.leader
        await admin.bundles.unload(scene.bundle, scene.leader)
    assert scene.cluster.owner(scene.bundle) != scene.well
    assert scene.asked == ASKED_BY_A_GET[scene.kind]


async def test_an_unload_is_not_sent_again_elsewhere_but_the_next_one_is_sent_there(scene: Scene) -> None:
    scene.fall_ill(scene.sick)
    async with scene.connect() as admin:
        with pytest.raises(AdminError) as caught:
            await admin.bundles.unload(scene.bundle, scene.leader)
        assert (caught.value.reason, caught.value.sent) == (REASONS[scene.kind], True)
        assert scene.cluster.owner(scene.bundle) == scene.well
        await admin.bundles.unload(scene.bundle, scene.leader)
    assert scene.cluster.owner(scene.bundle) != scene.well
    assert scene.asked == 1


@pytest.mark.parametrize("scene", [FaultKind.SILENT], indirect=True)
async def test_a_first_seed_that_hangs_costs_one_wait(scene: Scene) -> None:
    scene.fall_ill(scene.sick)
    async with scene.connect() as admin:
        reports = await admin.load_reports(await admin.brokers(), lambda broker, _: broker)
    assert scene.asked == 1
    failed = reports.pop(scene.sick)
    assert isinstance(failed, AdminError)
    assert (failed.reason, failed.sent) == ("timeout", False)
    assert set(reports.values()) == {scene.leader, scene.well}
