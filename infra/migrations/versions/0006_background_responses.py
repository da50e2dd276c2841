"""Responses that are made in the background: their runs, and how far they are.

Revision: 0006, after 0005.
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("response", sa.Column("run_id", sa.String(36), nullable=True))
    op.add_column("response", sa.Column("status", sa.String(16), nullable=True))
    op.create_index("ix_response_status", "response", ["status"])
