"""Tests of the whole product, started as a person starts it: real processes, real weights, the real client."""
