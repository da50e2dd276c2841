"""Tests of the repository itself: the habits of its code, its documents, its set-up."""
