"""Airflow extensions: connection type and hook, operators, DAG factory, state store access."""
