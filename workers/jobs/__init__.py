"""The job lane's worker process: Prefect workers of our own types, and what they ask the front for."""
