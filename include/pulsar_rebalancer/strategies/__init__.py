"""Pulsar's shedding and placement strategies, each for one cluster at a time. The code is written for readability."""
