"""The control server: PostgreSQL and Prefect as child processes, for those who have none."""
