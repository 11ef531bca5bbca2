"""What a monitoring system is told of a run."""
