"""The published comparison of shedders, run again in the simulated cluster (docs/experiments.md)."""
