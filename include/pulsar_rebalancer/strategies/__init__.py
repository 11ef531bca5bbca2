"""Pulsar's shedding and placement strategies, each for one cluster at a time."""
