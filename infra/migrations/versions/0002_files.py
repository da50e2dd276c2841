"""Files, uploads and their parts.

Revision: 0002, after 0001.
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "file",
        sa.Column("id", sa.String(80), nullable=False),
        sa.Column("key_name", sa.String(64), nullable=False),
        sa.Column("filename", sa.String(255), nullable=False),
        sa.Column("purpose", sa.String(32), nullable=False),
        sa.Column("media_type", sa.String(100), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("ref", sa.String(71), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_file_key_name", "file", ["key_name"])
    op.create_index("ix_file_ref", "file", ["ref"])
    op.create_table(
        "upload",
        sa.Column("id", sa.String(80), nullable=False),
        sa.Column("key_name", sa.String(64), nullable=False),
        sa.Column("filename", sa.String(255), nullable=False),
        sa.Column("purpose", sa.String(32), nullable=False),
        sa.Column("media_type", sa.String(100), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("file_expires_s", sa.BigInteger(), nullable=True),
        sa.Column("file_id", sa.String(80), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "upload_part",
        sa.Column("id", sa.String(80), nullable=False),
        sa.Column("upload_id", sa.String(80), nullable=False),
        sa.Column("key_name", sa.String(64), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("ref", sa.String(71), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_upload_part_upload_id", "upload_part", ["upload_id"])
    op.create_index("ix_upload_part_ref", "upload_part", ["ref"])
    op.create_table(
        "response",
        sa.Column("id", sa.String(80), nullable=False),
        sa.Column("key_name", sa.String(64), nullable=False),
        sa.Column("previous_id", sa.String(80), nullable=True),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("used_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("response", sa.JSON(), nullable=False),
        sa.Column("input", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_response_used_at", "response", ["used_at"])
    op.create_table(
        "batch",
        sa.Column("id", sa.String(80), nullable=False),
        sa.Column("key_name", sa.String(64), nullable=False),
        sa.Column("run_id", sa.String(36), nullable=True),
        sa.Column("flow", sa.String(32), nullable=False),
        sa.Column("endpoint", sa.String(64), nullable=False),
        sa.Column("input_file_id", sa.String(80), nullable=False),
        sa.Column("input_ref", sa.String(71), nullable=True),
        sa.Column("output_file_id", sa.String(80), nullable=True),
        sa.Column("error_file_id", sa.String(80), nullable=True),
        sa.Column("output_lasts_s", sa.BigInteger(), nullable=True),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("moments", sa.JSON(), nullable=False),
        sa.Column("labels", sa.JSON(), nullable=False),
        sa.Column("errors", sa.JSON(), nullable=False),
        sa.Column("total", sa.BigInteger(), nullable=False),
        sa.Column("completed", sa.BigInteger(), nullable=False),
        sa.Column("failed", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_batch_status", "batch", ["status"])
    op.create_index("ix_batch_input_ref", "batch", ["input_ref"])
    op.bulk_insert(
        sa.table("revision", sa.column("topic", sa.String()), sa.column("number", sa.BigInteger())),
        [{"topic": "files", "number": 0}],
    )


def downgrade() -> None:
    op.execute("DELETE FROM revision WHERE topic = 'files'")
    for table in ("batch", "response", "upload_part", "upload", "file"):
        op.drop_table(table)
