"""Act 4, show: the page, alerts, metrics, and a check of the files' age."""
