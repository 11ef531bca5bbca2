"""The one error of the embedded default."""


class EmbeddedError(Exception):
    """The embedded default cannot start or go on; the message says why and what to do."""
