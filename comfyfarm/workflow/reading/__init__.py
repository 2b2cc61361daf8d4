"""From bytes to nodes: wrappers, carriers and formats told apart by content."""
