"""Tests of the documents' opening."""
