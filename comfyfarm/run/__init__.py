"""One attempt of a job on a server, its outcome, and what follows from it."""
