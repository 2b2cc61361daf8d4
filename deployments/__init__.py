"""What a Prefect server must know of this farm; safe to repeat."""
