"""OpenAI's Responses over an engine's chat: its answer as a response object, its stream as events."""
