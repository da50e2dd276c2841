"""The routes for the install's own processes."""
