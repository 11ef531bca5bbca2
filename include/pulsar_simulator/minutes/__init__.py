"""A cluster simulated minute by minute, with figures in numpy columns: a month takes seconds (docs/simulation.md)."""
