"""Measured claims: python -m benchmarks [GROUP...]."""
