"""Experiments with strategies in a simulated cluster, and measurements of what a run costs."""
