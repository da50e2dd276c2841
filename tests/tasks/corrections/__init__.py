"""Tests of tasks.corrections."""
