"""Which models a file names: found in its nodes, placed in folders, and what is to be said of them."""
