"""The parts registered in Airflow: connection type, options, operators, links, notifier, plugin and asset URIs."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from pydantic import JsonValue

if TYPE_CHECKING:
    from airflow.cli.cli_config import CLICommand

_PACKAGE = "pulsar_rebalancer_airflow"
_INTEGRATION = "Apache Pulsar"

OPERATORS = (
    *("approve", "by_hand", "collect", "control", "gate", "maintain", "report", "roll", "spark_application", "unload"),
)
"""Modules in `operators/` that define a task's operator."""

SECTION = "pulsar_rebalancer"


def _option_entry(default: str, example: str | None, description: str) -> dict[str, Any]:
    return {
        "description": f"{description}\n",
        "version_added": "0.1.0",
        "type": "string",
        "example": example,
        "default": default,
    }


OPTIONS: dict[str, dict[str, Any]] = {
    "clusters_file": _option_entry(
        "{AIRFLOW_HOME}/config/pulsar_clusters.yaml",
        None,
        "Absolute path of the clusters file. Read by the DAG processor, the workers and the API server.",
    ),
    "storage_root": _option_entry(
        "{AIRFLOW_HOME}/pulsar_rebalancer",
        "s3://bucket/pulsar-rebalancer",
        "Folder of runs, moving averages and histories: an absolute path, or the address of an object store. "
        "The value must be the same for the DAG processor, the workers, the API server and Spark's executors.",
    ),
    "spark_archive": _option_entry(
        "",
        "/opt/airflow/spark.jsa",
        "Absolute path of a class-data archive of Spark's classes. The archive halves the start-up time of *decide*. "
        "Read by the workers.",
    ),
    "strategies": _option_entry(
        "",
        "my_package.my_module:shed",
        "Import paths (separated by commas) of custom shedders that the clusters file or a replay may name. "
        "Read by the DAG processor, the workers and the API server; the workers pass the value to Spark.",
    ),
}
"""Deployment settings; `options` reads them."""


def get_provider_info() -> dict[str, Any]:
    """Return what Airflow registers through the entry point `apache_airflow_provider`.

    The plugin is only listed here: Airflow loads it through the entry point `airflow.plugins`.
    """
    return {
        "package-name": "pulsar-rebalancer",
        "name": "Pulsar rebalancer",
        "description": "Balances the load of `Apache Pulsar <https://pulsar.apache.org/>`__ clusters, outside Pulsar.",
        "integrations": [
            {"integration-name": _INTEGRATION, "external-doc-url": "https://pulsar.apache.org/", "tags": ["apache"]}
        ],
        "operators": [
            {"integration-name": _INTEGRATION, "python-modules": [f"{_PACKAGE}.operators.{name}" for name in OPERATORS]}
        ],
        "hooks": [{"integration-name": _INTEGRATION, "python-modules": [f"{_PACKAGE}.hooks"]}],
        "notifications": [f"{_PACKAGE}.notifications.AlertNotifier"],
        "extra-links": [f"{_PACKAGE}.suites.ValidationLink", f"{_PACKAGE}.suites.ReplayLink"],
        "plugins": [{"name": SECTION, "plugin-class": f"{_PACKAGE}.plugin.PulsarRebalancerPlugin"}],
        "cli": [f"{_PACKAGE}.provider.get_cli_commands"],
        "asset-uris": [{"schemes": ["x-pulsar-rebalancer"], "handler": None}],
        "config": {
            SECTION: {"description": "Where the Pulsar rebalancer finds and stores its files.", "options": OPTIONS}
        },
        "connection-types": [
            {
                "hook-class-name": f"{_PACKAGE}.hooks.PulsarAdminHook",
                "hook-name": "Apache Pulsar admin",
                "connection-type": "pulsar_admin",
                "ui-field-behaviour": {
                    "hidden-fields": ["login", "extra"],
                    "relabeling": {"schema": "Scheme", "password": "Token"},
                    "placeholders": {
                        "host": "broker-0.example.com, or several separated by commas",
                        "port": "8080, or 8443 for https",
                        "schema": "http or https",
                        "password": "JSON web token of a super-user",
                    },
                },
                "conn-fields": {
                    "ca_file": _text_field("CA file", "PEM file of the only certificate authority to trust"),
                    "client_cert": _text_field("Client certificate", "PEM file"),
                    "client_key": _text_field("Client key", "PEM file; empty if Client certificate also has the key"),
                    "token_file": _text_field(
                        "Token file", "File with the token, if Token is empty; the file may be replaced at any time"
                    ),
                    "credentials_file": _text_field(
                        "OAuth 2.0 credentials file", "JSON file with client_id and client_secret, if Token is empty"
                    ),
                    "issuer_url": _text_field("Issuer URL", "https://…; if empty, issuer_url of the credentials file"),
                    "audience": _text_field("Audience", "Name of the Pulsar cluster at the issuer"),
                    "scope": _text_field("Scope", "Scopes to request, separated by spaces"),
                    "read_only": {
                        "label": "Read-only",
                        "description": "Send only GET requests; refuse all others",
                        "schema": {"type": ["boolean", "null"], "default": False},
                    },
                    "address_map": _text_field(
                        "Address map", 'URL by brokerId, as JSON: {"broker-0:8080": "http://127.0.0.1:18080"}'
                    ),
                    "address_template": _text_field(
                        "Address template",
                        "URL for brokers that are not in the map; {host} and {port} are those of the brokerId",
                    ),
                    "service_url": _text_field(
                        "Service URL",
                        "For the extensible load manager: pulsar+ssl://broker-0:6651; if empty, the brokers' own URLs",
                    ),
                    "answer_timeout_seconds": {
                        "label": "Time-out",
                        "description": "Maximum seconds until an answer is complete",
                        "schema": {"type": ["number", "null"], "exclusiveMinimum": 0},
                    },
                },
            }
        ],
    }


def get_cli_commands() -> list[CLICommand]:
    """Return `airflow pulsar-rebalancer`, which is the command `pulsar-rebalancer`."""
    from airflow.cli.cli_config import ActionCommand, Arg

    from pulsar_rebalancer.command.__main__ import SUBCOMMANDS, main

    words = Arg(  # type: ignore[no-untyped-call]
        ("words",), nargs=argparse.REMAINDER, metavar="SUBCOMMAND", help=f"{' or '.join(SUBCOMMANDS)}, with options"
    )
    what = "Check and operate the Pulsar rebalancer"
    return [ActionCommand("pulsar-rebalancer", what, lambda args: sys.exit(main(args.words)), [words])]


def _text_field(label: str, description: str) -> dict[str, JsonValue]:
    return {"label": label, "description": description, "schema": {"type": ["string", "null"]}}
