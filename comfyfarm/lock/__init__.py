"""Stage 2: what a graph names, pinned by content."""
