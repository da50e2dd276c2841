"""Tests of api.cli."""
