"""Tests of the readers of models that are folders."""
