"""Who wants something moved: one module for each source. A source decides neither caps nor files."""
