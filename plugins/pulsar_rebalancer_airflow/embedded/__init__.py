"""`make run`: start Airflow, Spark in local mode and a simulated cluster on this machine with one command."""


class MakeRunError(Exception):
    """The processes of `make run` cannot start or continue. The message gives the cause and the remedy."""
