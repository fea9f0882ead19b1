"""Tests for spark.jobs."""
