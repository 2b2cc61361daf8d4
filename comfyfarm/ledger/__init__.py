"""What is true: batches, jobs, attempts, claims, servers, outputs. PostgreSQL or SQLite."""
