"""Models that are folders: which kind one is, read from its files, and what would be loaded from it.

One module a format. Nothing here imports the libraries that load them.
"""
