"""Daily upkeep: finished days become one table per kind, and what is old goes."""
