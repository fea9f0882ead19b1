"""The Spark side: what turns the gateway's sinks into streaming rows."""
