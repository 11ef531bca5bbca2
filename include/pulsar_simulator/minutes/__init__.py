"""A cluster simulated minute by minute, with values in numpy columns: a month takes seconds (docs/simulation.md)."""
