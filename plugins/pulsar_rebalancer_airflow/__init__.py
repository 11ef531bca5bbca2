"""Extensions of Airflow: connection type and hook, operators, DAG factory, state store access."""
