"""Daily upkeep: compact past days into one table per kind, and delete old files."""
