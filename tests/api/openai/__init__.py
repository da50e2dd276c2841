"""Tests of api.openai."""
