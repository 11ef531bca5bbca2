"""The least that a Spark application does: reads one row and writes it. `spark_floor.py FROM TO`."""

import sys

from pyspark.sql import SparkSession

if __name__ == "__main__":
    spark = SparkSession.builder.appName("floor").getOrCreate()
    spark.read.schema("n bigint").parquet(sys.argv[1]).write.mode("overwrite").parquet(sys.argv[2])
    spark.stop()
