"""The embedded default: one machine, one command; Airflow, Spark in local mode and a simulated cluster."""


class EmbeddedError(Exception):
    """The embedded default cannot start or go on; the message says why and what to do."""
