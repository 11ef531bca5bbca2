"""Act 4, show: the page, alerts, metrics, and a check on how old the files are."""
