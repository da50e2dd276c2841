"""Stored chat completions, and the labels that they are found by.

Revision: 0007, after 0006.
"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "chat_completion",
        sa.Column("id", sa.String(80), nullable=False),
        sa.Column("key_name", sa.String(64), nullable=False),
        sa.Column("model", sa.String(200), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("completion_bytes", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("completion", sa.JSON(), nullable=False),
        sa.Column("messages", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_chat_completion_key_name_id", "chat_completion", ["key_name", "id"])
    op.create_index("ix_chat_completion_created_at", "chat_completion", ["created_at"])
    op.create_table(
        "chat_label",
        sa.Column("completion_id", sa.String(80), nullable=False),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("value", sa.String(512), nullable=False),
        sa.ForeignKeyConstraint(["completion_id"], ["chat_completion.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("completion_id", "name"),
    )


def downgrade() -> None:
    op.drop_table("chat_label")
    op.drop_table("chat_completion")
