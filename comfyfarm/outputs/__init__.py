"""The files of a finished job: collected, hashed, brought where they belong, with provenance."""
