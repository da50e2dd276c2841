"""The engine process: which program serves a model, and what that program does."""
