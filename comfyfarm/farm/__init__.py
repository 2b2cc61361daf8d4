"""The composition root: puts the stages together. The command and the flows call it."""
