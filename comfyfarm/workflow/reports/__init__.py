"""What preflight found, as one value, and in the forms in which others read it."""
