"""The executable specification of Pulsar's shedding strategies: one cluster at a time, meant to be read."""
