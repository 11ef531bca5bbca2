"""Act 4, show: the page, alerts and metrics."""
