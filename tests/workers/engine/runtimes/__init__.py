"""Tests of workers.engine.runtimes."""
