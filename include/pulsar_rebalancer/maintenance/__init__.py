"""Daily upkeep: compact finished days into one table per kind, and delete old files."""
