"""Configuration and credentials as Prefect blocks."""
