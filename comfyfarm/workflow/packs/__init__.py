"""Node packs: which one each class of a file comes from, at which commit, and whether it is allowed."""
