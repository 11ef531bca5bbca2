"""The suites are data: every expectation can be built, and says what a miss means."""

import great_expectations as gx
import pyarrow as pa
import pytest

from pulsar_rebalancer.decide.validation import load_suite, suites_folder
from pulsar_rebalancer.run import tables

MAY_BE_MISSING = {"load_average", "throughput_average", "topics", "bundles", "producers", "consumers"}
MAY_BE_MISSING |= {"cache_size", "top_rank"}
SUITES = {path.stem: load_suite(path.parent, path.stem) for path in suites_folder().glob("*.json")}


@pytest.mark.parametrize("name", sorted(SUITES))
def test_great_expectations_builds_the_suite(name):
    suite = gx.ExpectationSuite(**SUITES[name])
    assert suite.name == name
    assert len(suite.expectations) == len(SUITES[name]["expectations"])


@pytest.mark.parametrize("name", ["brokers", "bundles"])
def test_every_figure_has_a_bound(name):
    values = {f.name for f in tables.INPUT[name] if pa.types.is_floating(f.type) or pa.types.is_integer(f.type)}
    refused = {e["kwargs"]["column"] for e in SUITES[name]["expectations"] if "max_value" in e["kwargs"]}
    assert values <= refused
