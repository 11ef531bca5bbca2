"""Every command of the documents is exercised: here, or by a test that is named here."""

import tests.airflow_home  # noqa: F401 - before anything of Airflow

# isort: split

import re
import shlex
import shutil
from collections.abc import Callable, Iterator

import pytest
from airflow.dag_processing.bundles.manager import DagBundlesManager
from airflow.dag_processing.dagbag import sync_bag_to_db
from airflow.utils import db
from tests.airflow_home import HOME
from tests.project.documentation import ROOT, commands, commands_in_blocks, prose
from tests.project.exercised import (
    archived,
    asked_from_outside,
    bag,
    benchmark,
    benchmark_page,
    by,
    composed,
    connection,
    connection_gone,
    dags,
    deleted,
    done,
    embedded,
    experiment,
    exported,
    helped,
    make,
    observes,
    observes_simulated,
    of_families,
    of_gain,
    on_kubernetes,
    removed,
    set_on_brokers,
    strategy,
    triggered,
    unpaused,
    wheel,
)

EAST = "clusters: {east: {connection: pulsar_admin_east, alert_connection: pulsar_alerts, mode: approve}}"
BALANCED = "tests/integration/test_embedded.py::test_once_ends_when_the_cluster_is_balanced"
APPROVED = "tests/integration/test_approve.py::test_a_plan_is_carried_out_once_a_person_approves_it"
LIGHT = "tests/project/test_wheel.py::test_the_core_wheel_alone_looks_at_a_cluster_within_a_minute"
DRAINED = "tests/integration/test_approve.py::test_a_broker_is_drained_by_one_command_that_waits"
SIMULATION = "tests/project/test_documented_simulation.py::test_the_example"
CONNECTED = (
    "tests/spark_apps/pulsar_rebalancer_spark/test_spark_connect.py"
    "::test_the_same_plans_after_a_killed_task_whose_run_has_ended_too"
)
LISTED = "tests/plugins/pulsar_rebalancer_airflow/test_registration.py::test_airflow_lists_the_options"
ALL_DAGS = ("rebalance", "by_hand", "control", "maintenance", "replay", "watch", "apply", "roll")


TABLE: dict[str, Callable[[list[str]], None]] = {
    "make run": make(embedded, by(BALANCED)),
    "make run STRATEGY=ThresholdShedder": make(strategy, by(BALANCED)),
    "make run PULSAR=http://broker:8080": make(observes),
    "make test": make(by("tests/project/test_documented_commands.py")),
    "make test TESTS=tests/include": make(by("tests/project/test_documented_commands.py")),
    "make test-system": make(by("tests/integration/test_killed_task.py")),
    "make test-pulsar": make(by("tests/pulsar/test_rebalance.py")),
    "make mutants": make(by("tests/project/test_mutants.py::test_every_subject_has_faults_and_tests")),
    "make lint": make(),
    "make benchmark": make(benchmark, benchmark_page),
    "make benchmark PART=decide": make(benchmark),
    "make experiments": make(experiment),
    'make experiments NAME="jitter cold_start" SEEDS=2': make(experiment),
    "make experiments PAGE=1": make(experiment),
    "make experiments DRAW=1": make(experiment),
    "python -m lab.experiments jitter --strategy my_package.my_module:shed": experiment,
    'make families NAME="bursts scaling" SEEDS=2': make(of_families),
    "python -m lab.gain parts": of_gain,
    "make wheel": make(by("tests/project/test_wheel.py")),
    "make help": helped,
    "make setup": done("--dry-run"),
    "make lock": make(),
    "make docs": make(by("tests/project/test_site.py")),
    ".venv/bin/pytest tests/include/pulsar_rebalancer/run": by("tests/include/pulsar_rebalancer/run"),
    ".venv/bin/pytest tests/include/pulsar_rebalancer/carry_out -k owner": done("--collect-only", "--quiet"),
    ".venv/bin/python scripts/reference.py": by(
        "tests/project/test_generated.py::test_tables_and_types_are_those_of_the_code"
    ),
    ".venv/bin/python -m scripts.pictures": by("tests/project/test_generated.py::test_pictures_are_drawn"),
    "make audit": make(by("tests/project/test_audit.py")),
    "airflow connections add pulsar_admin_east --conn-json '{ "
    '"conn_type": "pulsar_admin", "schema": "https", "host": "broker-1,broker-2", "port": 8443, "password": "<token>", '
    '"extra": {"ca_file": "/etc/pulsar/ca.pem", "read_only": true} }\'': connection,
    "airflow dags trigger pulsar_rebalance__east "
    '--conf \'{"force": "two brokers were added", "force_threshold": 10}\'': triggered,
    "pulsar-admin brokers update-dynamic-config --config loadBalancerSheddingEnabled --value false": set_on_brokers,
    "pulsar-admin brokers update-dynamic-config --config loadBalancerSheddingEnabled --value true": set_on_brokers,
    "airflow dags trigger pulsar_control__east --conf '{ "
    '"action": "pause", "until": "2027-01-02T06:00:00Z", "reason": "holiday freeze" }\'': triggered,
    "airflow dags trigger pulsar_by_hand__east --conf '{ "
    '"action": "unload", "bundles": ["acme/orders"], "destination": "broker-3:8080" }\'': triggered,
    "airflow dags trigger pulsar_by_hand__east --conf '{ "
    '"action": "release", "broker": "broker-3:8080", "reason": "the disks are in" }\'': triggered,
    'airflow dags trigger pulsar_by_hand__east --conf \'{"plan": "<hash>"}\'': triggered,
    "airflow dags trigger pulsar_roll__east --conf '{ "
    '"brokers": ["broker-3:8080", "broker-4:8080"], "reason": "kernel 6.12" }\'': triggered,
    'airflow dags trigger pulsar_roll__east --conf \'{"plan": "<id>"}\'': triggered,
    'curl -X PATCH "$AIRFLOW/api/v2/dags/pulsar_apply__east/dagRuns/$RUN/taskInstances/approve/-1/hitlDetails" \\ '
    '--oauth2-bearer "$TOKEN" '
    '--json \'{"chosen_options": ["Approve"], "params_input": {"reason": "it is quiet now"}}\'': by(APPROVED),
    "pulsar-rebalancer check-age --root /var/lib/pulsar-rebalancer --cluster east "
    "--max-age-seconds 300": asked_from_outside,
    'AIRFLOW_URL=https://airflow.example.com AIRFLOW_TOKEN="$TOKEN" '
    "pulsar-rebalancer drain broker-3:8080 --cluster east --seconds 900": by(DRAINED),
    'pip install --find-links dist "dist/pulsar_rebalancer-0.1.0-py3-none-any.whl[alerts,extensible]"': wheel,
    "pipx install ./include/pulsar_rebalancer": by(LIGHT),
    "pulsar-rebalancer inspect http://broker:8080": by(LIGHT),
    "airflow config list --section pulsar_rebalancer --show-values": by(LISTED),
    "python -m pulsar_rebalancer_airflow.spark_archive /opt/airflow/spark.jsa": archived,
    **{each: by(CONNECTED) for each in commands_in_blocks("operations.md") if "SparkConnectServer" in each},
    "python -m pulsar_simulator": by(SIMULATION),
    **dict.fromkeys(commands_in_blocks("simulation.md"), by(SIMULATION)),
    'PULSAR_TOKEN="$(cat simulation.token)" make run PULSAR=http://127.0.0.1:18080': observes_simulated,
    'AIRFLOW_CONN_PULSAR_ALERTS=\'{"conn_type": "apprise", "extra": {"config": [ {"path": "slack://…"}, '
    '{"path": "mailtos://user:password@mail.example.com?to=ops@example.com"}]}}\'': exported,
    "deploy/make_env.sh": by("tests/deployment/test_compose.py::test_secrets_that_are_there_are_not_replaced"),
    "docker compose up --detach --build": composed,
    "docker compose ps": composed,
    "docker compose exec pulsar-broker-1 bin/pulsar-admin namespaces create public/trial --bundles 16": composed,
    "docker compose exec pulsar-broker-1 bin/pulsar-perf produce --num-topics 32 --rate 5000 "
    "public/trial/load": composed,
    "deploy/make_env.sh deploy/kubernetes": by(
        "tests/deployment/test_kubernetes.py::test_its_secrets_are_made_like_those_of_the_compose_file"
    ),
    **{each: on_kubernetes for each in commands_in_blocks("kubernetes.md") if each.startswith(("kubectl", "helm"))},
    "docker compose down": composed,
    "docker compose down --volumes": composed,
    "rm -r /var/lib/pulsar-rebalancer/east": removed,
    "airflow dags unpause pulsar_rebalance__east": unpaused,
    "airflow connections delete pulsar_admin_east": connection_gone,
    **{f"airflow dags delete --yes pulsar_{kind}__east": deleted for kind in ALL_DAGS},
}
"""Commands that delete come last."""


@pytest.fixture(scope="module", autouse=True)
def east(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """An Airflow whose database knows the DAGs of a cluster `east`."""
    folder = tmp_path_factory.mktemp("documented")
    (folder / "clusters.yaml").write_text(EAST)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW__PULSAR_REBALANCER__CLUSTERS_FILE", str(folder / "clusters.yaml"))
        patch.setenv("AIRFLOW__PULSAR_REBALANCER__STORAGE_ROOT", str(folder / "storage"))
        db.initdb()
        shutil.copy(ROOT / "dags" / "pulsar_rebalancer_dags.py", HOME / "dags")
        DagBundlesManager().sync_bundles_to_db()
        sync_bag_to_db(bag(), "dags-folder", None)
        yield
        (HOME / "dags" / "pulsar_rebalancer_dags.py").unlink()


@pytest.mark.parametrize("command", TABLE)
def test_command(command: str) -> None:
    TABLE[command](shlex.split(command))


def test_every_command_is_in_the_table_and_the_other_way_round() -> None:
    assert commands() - TABLE.keys() == set(), "documented, and exercised by nothing"
    assert TABLE.keys() - commands() == set(), "documented no more"


def test_dags_that_are_named_exist() -> None:
    named = set(re.findall(r"pulsar_[a-z_]+?__(?:east|<cluster>)", "\n".join([prose(), *commands()])))
    assert {name.replace("<cluster>", "east") for name in named} <= set(dags())
    assert {name.removeprefix("pulsar_").partition("__")[0] for name in named} == set(ALL_DAGS)
