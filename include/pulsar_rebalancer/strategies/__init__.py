"""Pulsar's shedding and placement strategies for one cluster at a time, written to be read."""
