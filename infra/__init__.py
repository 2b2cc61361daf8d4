"""What the Makefile runs: demo, wheel check, services for tests. Never part of the wheel."""
