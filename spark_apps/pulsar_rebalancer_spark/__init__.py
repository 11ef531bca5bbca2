"""The Spark applications and their DataFrame transforms."""

from pathlib import Path

APPLICATION = str(Path(__file__).with_name("rebalance.py"))
"""The application that decides, for spark-submit; known without importing pyspark."""
