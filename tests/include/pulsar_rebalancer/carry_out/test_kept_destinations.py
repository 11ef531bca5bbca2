import pytest
from tests.include.pulsar_rebalancer.carry_out.unloading_scene import ON_A, SHORT

from pulsar_rebalancer.errors import AdminError
from pulsar_rebalancer.reasons import Reason

ONCE = {"retries": 0, "timeout": SHORT, "unload_timeout_s": SHORT}


@pytest.fixture
def move(scene):
    """From B to A; the client asks A first, which redirects to the leader C, and that to the owner."""
    scene.cluster.change_leader(scene.c)
    return scene.move(ON_A, scene.a).model_copy(update={"source": scene.b})


def unloaded_by_a_person(scene):
    """Where the bundle lands that somebody unloads without a destination: on C, the coldest, unless one was kept."""
    scene.cluster.faults.clear()
    scene.cluster.unload(scene.bundles[ON_A])
    return scene.cluster.lookup(scene.cluster.topology.topics(ON_A)[0])


@pytest.mark.parametrize("fault", ["error_500", "reset", "silent"])
def test_an_unload_that_fails_behind_the_leader_leaves_its_destination_there(scene, move, fault):
    scene.cluster.faults.add(fault, scene.b, path="/unload")

    outcome = scene.run_one(move, **ONCE)

    assert (outcome.ok, outcome.owner, outcome.destination_kept) == (False, scene.b, True)
    assert unloaded_by_a_person(scene) == scene.a


@pytest.mark.parametrize("fault", ["forbidden", "unauthorized"])
def test_an_unload_that_the_leader_refuses_leaves_nothing(scene, move, fault):
    scene.cluster.faults.add(fault, scene.c, path="/unload")

    outcome = scene.run_one(move, **ONCE)

    assert (outcome.reason, outcome.destination_kept) == (fault, False)
    assert unloaded_by_a_person(scene) == scene.c


def test_the_next_unload_takes_its_place(scene, move):
    scene.cluster.faults.add("error_500", scene.b, path="/unload", times=1)

    outcome = scene.run_one(move, retries=1, timeout=SHORT)

    assert (outcome.reason, outcome.attempts, outcome.destination_kept) == ("moved", 2, False)


@pytest.mark.parametrize(("earlier", "dead", "kept"), [(0, "b", True), (0, "c", False), (1, "c", True)])
def test_an_unload_that_reaches_nobody_leaves_its_destination_if_the_leader_sent_it_on(
    scene, move, caplog, earlier, dead, kept
):
    """The leader redirected it to a dead owner; a dead leader has remembered nothing, except from an earlier try."""
    scene.cluster.faults.add("error_500", scene.b, path="/unload", times=1)

    def prepare(admin):
        def unreachable():
            if len(admin.unloads) > earlier:
                raise AdminError(Reason.UNREACHABLE, "no connection", broker=getattr(scene, dead), was_sent=False)

        admin.before_unload = unreachable

    outcome = scene.run_one(move, prepare=prepare, retries=earlier, timeout=0.05)

    assert (outcome.reason, outcome.owner, outcome.destination_kept) == ("unreachable", scene.b, kept)
    assert (f"the leader may send the next unload to {scene.a}" in caplog.text) is kept


def test_the_extensible_load_manager_remembers_nothing(scene):
    scene.cluster.faults.add("error_500", path="/unload")

    assert not scene.run_one(affinity=False, **ONCE).destination_kept
