"""Stage 3: jobs and batches as values."""
