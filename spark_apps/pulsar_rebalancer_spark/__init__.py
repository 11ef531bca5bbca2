"""The Spark applications and their DataFrame transforms."""
