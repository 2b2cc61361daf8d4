"""Which server gets which job: pure decisions."""
