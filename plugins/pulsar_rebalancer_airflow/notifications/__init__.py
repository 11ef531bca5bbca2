"""Alerts: what a run shows, the messages on their way to receivers, and what of them is kept between runs."""
