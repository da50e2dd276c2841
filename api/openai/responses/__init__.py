"""`/v1/responses`: OpenAI's Responses over the chat engines."""
