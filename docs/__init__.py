"""The documentation; `docs/generate.py` writes those of its pages that follow from the code."""
