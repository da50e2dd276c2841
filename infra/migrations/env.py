"""Runs migrations on the connection, and in the transaction, that `infra/migrate.py` hands over."""

from alembic import context
from sqlalchemy import Connection
from sqlmodel import SQLModel

from infra import tables

connection = context.config.attributes["connection"]
assert isinstance(connection, Connection)
assert tables.HEAD
context.configure(
    connection=connection,
    target_metadata=SQLModel.metadata,
    render_as_batch=True,
    transactional_ddl=True,
)
context.run_migrations()
