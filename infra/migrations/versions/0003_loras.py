"""LoRA adapters.

Revision: 0003, after 0002.
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "lora",
        sa.Column("id", sa.String(80), nullable=False),
        sa.Column("key_name", sa.String(64), nullable=False),
        sa.Column("name", sa.String(100), nullable=True),
        sa.Column("shared", sa.Boolean(), nullable=False),
        sa.Column("base_model", sa.String(200), nullable=True),
        sa.Column("rank", sa.BigInteger(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("ref", sa.String(71), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("key_name", "name"),
    )
    op.create_index("ix_lora_ref", "lora", ["ref"])


def downgrade() -> None:
    op.drop_table("lora")
