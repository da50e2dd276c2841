"""Children of an install: started, watched, restarted with backoff, ended with their parent."""
