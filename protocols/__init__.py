"""The five wire protocols, one package each, and the machinery they share."""
