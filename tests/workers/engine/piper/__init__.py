"""piper: its environment, its process, the program in it."""
