"""Tests of workers.pools."""
