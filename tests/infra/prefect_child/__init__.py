"""The Prefect child: recorded by the real server, on SQLite and on PostgreSQL."""
