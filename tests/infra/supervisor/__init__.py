"""Tests of infra.supervisor."""
