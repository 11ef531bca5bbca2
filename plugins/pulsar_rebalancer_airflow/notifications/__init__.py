"""Alerts and metrics: what a run reports to people and to monitoring systems."""
