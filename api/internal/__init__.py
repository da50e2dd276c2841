"""Routes for the install's own processes."""
