"""OpenAI-shaped resources, one module each."""
