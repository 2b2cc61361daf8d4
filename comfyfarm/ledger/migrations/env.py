"""Runs migrations on the connection it is given. It sets up no logging and prints nothing."""

from alembic import context

from comfyfarm.ledger.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
with context.begin_transaction():
    context.run_migrations()
