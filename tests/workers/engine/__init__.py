"""Tests of workers.engine."""
