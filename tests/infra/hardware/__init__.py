"""Tests of infra.hardware."""
