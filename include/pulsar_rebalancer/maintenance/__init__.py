"""Daily upkeep: compact the runs of past days into one table per kind, and delete old files."""
