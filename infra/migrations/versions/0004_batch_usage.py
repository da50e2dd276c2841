"""What batches have used.

Revision: 0004, after 0003.
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("batch", sa.Column("model", sa.String(200), nullable=True))
    op.add_column("batch", sa.Column("usage", sa.JSON(), nullable=True))
