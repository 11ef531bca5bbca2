"""The embedded default: Airflow, Spark in local mode and a simulated cluster on one machine, with one command."""


class EmbeddedError(Exception):
    """Raised if the embedded default cannot start or continue; the message says why and what to do."""
