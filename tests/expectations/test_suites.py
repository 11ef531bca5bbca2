"""The suites are data: every expectation can be built, and says what a miss means."""

import json

import great_expectations as gx
import pytest
from great_expectations.expectations.registry import get_expectation_impl

from pulsar_rebalancer import snapshot
from pulsar_rebalancer.reasons import REASONS
from pulsar_rebalancer.settings import Settings
from pulsar_rebalancer_airflow.validation import KEYS, parameters, suites_folder

SEVERITY = {"block": "critical", "hold": "critical", "quarantine": "warning", "warn": "info"}
ADDED = {"brokers": {f"{r}_percent" for r in snapshot.RESOURCES} | {"unaccounted_percent"}}
SUITES = {path.stem: json.loads(path.read_text()) for path in suites_folder().glob("*.json")}
EXPECTATIONS = [
    pytest.param(name, expectation, id=f"{name}-{i}")
    for name, suite in SUITES.items()
    for i, expectation in enumerate(suite["expectations"])
]


def test_there_is_a_suite_for_every_table():
    assert set(SUITES) == set(snapshot.INPUT) == set(KEYS)


@pytest.mark.parametrize("name", sorted(SUITES))
def test_great_expectations_builds_the_suite(name):
    suite = gx.ExpectationSuite(**SUITES[name])
    assert suite.name == name
    assert len(suite.expectations) == len(SUITES[name]["expectations"])


@pytest.mark.parametrize(("name", "expectation"), EXPECTATIONS)
def test_an_expectation_says_what_a_miss_means(name, expectation):
    meta = expectation["meta"]
    assert meta["effect"] == REASONS[meta["reason"]].effect
    assert expectation["severity"] == SEVERITY[meta["effect"]]
    assert get_expectation_impl(expectation["type"]) is not None
    columns = set(snapshot.INPUT[name].names) | ADDED.get(name, set())
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

    bounded = columns("expect_column_values_to_be_between") - ADDED.get(name, set()) - {"listings", "owners"}
    assert bounded <= columns("expect_column_values_to_not_be_null")
