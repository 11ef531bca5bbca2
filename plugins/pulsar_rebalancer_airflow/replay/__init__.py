"""The report of a replay in the Airflow UI."""
