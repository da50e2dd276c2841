"""Tests of the job lane's workers."""
