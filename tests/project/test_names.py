from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("include/pulsar_rebalancer", "plugins/pulsar_rebalancer_airflow", "spark_apps/pulsar_rebalancer_spark")
MODULES = [
    path for package in PACKAGES for path in (ROOT / package).rglob("*.py") if path.stem not in ("__init__", "__main__")
]
TWO_SIDES = {"gate": "the rule and its operator", "scoring": "in numpy and in Spark"}
"""Modules of the same name, because they are two sides of one concept."""


def test_a_module_is_named_once() -> None:
    assert len(MODULES) > 100
    # Not even with another underscore: `handover` and `hand_over` would be taken for one.
    counted = Counter(path.stem.replace("_", "") for path in MODULES)
    assert {stem for stem, count in counted.items() if count > 1} == set(TWO_SIDES)
