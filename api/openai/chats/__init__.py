"""Stored chat completions: what is kept of a chat that asks for it, and the routes that find it again."""
