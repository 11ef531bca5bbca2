"""DAGs to start from. Airflow does not load them: copy one into the DAGs folder, with your cluster's name."""
