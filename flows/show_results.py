"""What a batch leaves in the dashboard: a table of its jobs and a contact sheet."""

import re
from collections.abc import Sequence
from hashlib import sha256

from prefect.artifacts import acreate_markdown_artifact, acreate_table_artifact

from comfyfarm.farm.results import ResultRow
from comfyfarm.outputs.contact_sheet import contact_sheet

_ROWS = 500  # an artifact lies in Prefect's database: `comfyfarm results` shows the rest


async def show_results(batch: str, rows: Sequence[ResultRow], pictures: Sequence[tuple[str, bytes]]) -> None:
    """Make both artifacts, or new versions of them."""
    key = artifact_key(batch)
    await acreate_table_artifact(
        key=f"results-{key}",
        table=[_cells(row) for row in rows[:_ROWS]],
        description=f"Batch `{batch}`: {len(rows)} {'job' if len(rows) == 1 else 'jobs'}"
        + (f", the first {_ROWS} shown" if len(rows) > _ROWS else ""),
    )
    if pictures:
        await acreate_markdown_artifact(
            key=f"contact-sheet-{key}",
            markdown=contact_sheet(pictures),
            description=f"Outputs of batch `{batch}`",
        )


def artifact_key(batch: str) -> str:
    """Lower case letters, digits and dashes, distinct for distinct names."""
    slug = re.sub(r"[^a-z0-9]+", "-", batch.lower()).strip("-")[:60]
    exact = slug == batch
    return slug if exact else f"{slug}-{sha256(batch.encode()).hexdigest()[:8]}".strip("-")


def _cells(row: ResultRow) -> dict[str, str]:
    return {
        "job": row.id,
        "parameters": " ".join(f"{key}={value}" for key, value in row.parameters.items()),
        "status": row.status,
        "server": row.server or "",
        "attempts": str(row.attempts),
        "seconds": "" if row.seconds is None else f"{row.seconds:.2f}",
        "files": " ".join(file.path for file in row.files),
        "reason": row.reason,
    }
