"""Requests that bring images, documents or sound."""
