"""OpenAI's own client tests against this server: `python -m tests.conformance` (`make conformance`)."""
