"""Tests of requests that bring media."""
