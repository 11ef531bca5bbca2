"""AvgShedder and its surroundings, in plain Python: no Airflow, no Spark, no Great Expectations."""
