"""Pulsar's placement strategies: which of a bundle's candidate brokers is to be its destination."""
