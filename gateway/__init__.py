"""The gateway itself: one Broker, its journal, its sinks and the service that holds them."""
