"""Alembic's folder: how the schema came to be, one file a revision."""
