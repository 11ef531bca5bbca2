"""A cluster in steps of a minute, every figure a column: a month passes in seconds (docs/simulation.md)."""
