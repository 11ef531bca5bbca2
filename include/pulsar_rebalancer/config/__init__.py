"""Configuration: a cluster's settings, the clusters file, and which source of a setting takes precedence."""
