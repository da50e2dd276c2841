"""Tests of CoderAI."""
