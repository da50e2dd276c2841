"""The ground: settings, database, records, supervisor, hardware, metrics, security, files. Imports nothing of ours."""
