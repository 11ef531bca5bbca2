"""The embedded default: one command starts Airflow, Spark in local mode and a simulated cluster on this machine."""


class EmbeddedError(Exception):
    """The embedded default cannot start or continue. The message has the cause and the remedy."""
