"""`make demo`: a real gateway, and lively traffic of all kinds of clients, until it is enough."""
