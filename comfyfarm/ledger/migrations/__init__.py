"""The ledger's schema, step by step. Run by `comfyfarm.ledger.migrate` only."""
