"""piper, which speaks. It is under the GPL, so it has an environment and a process of its own, and a pipe to us."""
