"""Tests of workers.packaged."""
