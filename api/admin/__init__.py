"""Routes for operators: load and unload models, see the state of the install."""
