"""Tests of api.admin."""
