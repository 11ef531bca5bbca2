"""A fresh AIRFLOW_HOME for the whole test session; to be imported before anything of Airflow is."""

import atexit
import os
import secrets
import shutil
import sys
import tempfile
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1]
HOME = Path(tempfile.mkdtemp(prefix="pulsar-rebalancer-airflow-"))
_owner = os.getpid()


def _remove() -> None:
    if os.getpid() == _owner:  # tasks may be forks of this process
        shutil.rmtree(HOME, ignore_errors=True)


if "airflow" in sys.modules:
    raise RuntimeError("Airflow was imported before its home was set")
atexit.register(_remove)
(HOME / "dags").mkdir()
for name in [name for name in os.environ if name.startswith(("AIRFLOW", "PULSAR_REBALANCER_"))]:
    del os.environ[name]
loopback = ",".join(filter(None, [os.environ.get("no_proxy") or os.environ.get("NO_PROXY"), "127.0.0.1", "localhost"]))
os.environ.update(
    no_proxy=loopback,
    NO_PROXY=loopback,
    AIRFLOW_HOME=str(HOME),
    AIRFLOW__API_AUTH__JWT_SECRET=secrets.token_hex(64),
    AIRFLOW__CORE__LOAD_EXAMPLES="False",
    AIRFLOW__CORE__UNIT_TEST_MODE="True",
    AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT="600",
    AIRFLOW__CORE__DAGS_FOLDER=str(HOME / "dags"),
    AIRFLOW__DATABASE__SQL_ALCHEMY_CONN=f"sqlite:///{HOME / 'airflow.db'}",
    AIRFLOW__LOGGING__LOGGING_LEVEL="WARNING",
)
