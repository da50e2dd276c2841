"""Tests of api.openai.schemas."""
