"""Stored chat completions."""
