"""The embedded default: one machine, one command, Airflow standalone with Spark in local mode."""
