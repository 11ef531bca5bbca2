"""The published comparison of shedders, run again in the simulated cluster (docs/evidence.md)."""
