"""The suites are data: every expectation can be built, and says what a miss means."""

import great_expectations as gx
import pyarrow as pa
import pytest
from great_expectations.expectations.registry import get_expectation_impl

from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.reasons import Effect, Reason
from pulsar_rebalancer.run import tables
from pulsar_rebalancer_airflow.validation.findings import KEYS
from pulsar_rebalancer_airflow.validation.suites import load_suite, parameters, suites_folder

OF_BROKERS = {f"{r}_percent" for r in tables.RESOURCES} | {
    "deciding_resource",
    "deciding_percent",
    "unaccounted_percent",
}
ADDED = {"brokers": OF_BROKERS}
COUNTED_HERE = {"listings", "owners"}
MAY_BE_MISSING = {"load_average", "throughput_average", "topics", "bundles", "producers", "consumers"}
MAY_BE_MISSING |= {"cache_size", "top_rank"}
SUITES = {path.stem: load_suite(path.parent, path.stem) for path in suites_folder().glob("*.json")}
EXPECTATIONS = [
    pytest.param(name, expectation, id=f"{name}-{i}")
    for name, suite in SUITES.items()
    for i, expectation in enumerate(suite["expectations"])
]


def test_there_is_a_suite_for_every_table():
    assert set(SUITES) == set(tables.INPUT) == set(KEYS)


@pytest.mark.parametrize("name", sorted(SUITES))
def test_great_expectations_builds_the_suite(name):
    suite = gx.ExpectationSuite(**SUITES[name])
    assert suite.name == name
    assert len(suite.expectations) == len(SUITES[name]["expectations"])


@pytest.mark.parametrize(("name", "expectation"), EXPECTATIONS)
def test_an_expectation_says_what_a_miss_means(name, expectation):
    meta = expectation["meta"]
    assert Reason(meta["reason"]).effect is not Effect.VERDICT
    assert get_expectation_impl(expectation["type"]) is not None
    columns = set(tables.INPUT[name].names) | ADDED.get(name, set())
    assert set(meta.get("detail", ())) <= columns
    assert expectation["kwargs"].get("column", next(iter(columns))) in columns


@pytest.mark.parametrize(("name", "expectation"), EXPECTATIONS)
def test_parameters_are_given_by_the_runner(name, expectation):
    used = {value["$PARAMETER"] for value in expectation["kwargs"].values() if isinstance(value, dict)}
    assert used <= set(parameters(Settings()))


@pytest.mark.parametrize("name", ["brokers", "bundles"])
def test_every_bounded_figure_must_be_there(name):
    # Nulls pass every other expectation of Great Expectations.
    def columns(kind):
        return {e["kwargs"]["column"] for e in SUITES[name]["expectations"] if e["type"] == kind}

    bounded = columns("expect_column_values_to_be_between") - ADDED.get(name, set()) - COUNTED_HERE - MAY_BE_MISSING
    assert bounded <= columns("expect_column_values_to_not_be_null")


@pytest.mark.parametrize("name", ["brokers", "bundles"])
def test_every_figure_has_a_bound(name):
    figures = {f.name for f in tables.INPUT[name] if pa.types.is_floating(f.type) or pa.types.is_integer(f.type)}
    refused = {e["kwargs"]["column"] for e in SUITES[name]["expectations"] if "max_value" in e["kwargs"]}
    assert figures <= refused
