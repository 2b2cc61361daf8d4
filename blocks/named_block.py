"""What all our blocks share: a loader whose error names the block and how to make it."""

from typing import Self

from prefect.blocks.core import Block
from prefect.blocks.system import Secret

from comfyfarm.errors import UsageError


class NamedBlock(Block):
    """A block that says its own name when it is missing."""

    _logo_url = Secret._logo_url  # Prefect's own picture: without one the dashboard shows a broken image

    @classmethod
    async def named(cls, name: str) -> Self:
        """Load the block `name`.

        Raises:
            UsageError: there is none of that name and kind.
        """
        try:
            return await cls.aload(name)
        except ValueError as exc:
            raise UsageError(
                f"there is no block {cls.get_block_type_slug()}/{name}: "
                "make it in the dashboard, or run deployments/deploy.py"
            ) from exc
