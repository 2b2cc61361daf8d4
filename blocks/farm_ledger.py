"""The ledger's address, which may hold a password."""

from pydantic import Field, SecretStr

from blocks.named_block import NamedBlock


class FarmLedger(NamedBlock):
    """Where the truth about batches and jobs is kept."""

    _block_type_name = "Farm Ledger"
    _block_type_slug = "ledger"
    _description = "The comfyfarm database of batches, jobs, attempts and outputs."

    address: SecretStr = Field(
        title="Address", description="postgresql://user:password@host/comfyfarm, or sqlite:///PATH."
    )
