"""Where Spark looks by itself for `format("mqgateway")`: it imports every module `pyspark_*`."""

from spark.source import MqgatewaySource as DefaultSource

__all__ = ["DefaultSource"]
