"""Packs as `resolve_packs` gives them, with what is missing asked of a registry and of git servers."""

from collections.abc import Collection, Mapping, Sequence

from comfyfarm.lock.registry import ask_registry
from comfyfarm.lock.remotes import remote_releases
from comfyfarm.workflow.file_node import FileNode
from comfyfarm.workflow.packs.index import PackIndex, merged
from comfyfarm.workflow.packs.pack import PackResolution
from comfyfarm.workflow.packs.resolve import resolve_packs
from comfyfarm.workflow.schema import NodeSchema


def resolve_online(
    nodes: Sequence[FileNode],
    schema: NodeSchema,
    *,
    index: PackIndex,
    choices: Mapping[str, str],
    registry: str | None = None,
    ask_remotes: bool = False,
    run: Collection[str] | None = None,
) -> PackResolution:
    """The packs of a file; asks only for what is still missing.

    `registry`: address of the registry, for ids whose repository nothing at hand knows. `ask_remotes`:
    whether repositories are asked for the tags of their releases. `run`: as for `resolve_packs`.

    Raises:
        TryLater: the registry does not answer.
        UsageError: git is not installed, or the registry's address is none.
    """
    found = resolve_packs(nodes, schema, index=index, choices=choices, run=run)
    ids = sorted({row.pack for row in found.needed if row.url is None and row.pack is not None})
    if registry is not None and ids:
        index = merged([index, ask_registry(registry, ids)])
        found = resolve_packs(nodes, schema, index=index, choices=choices, run=run)
    urls = sorted({row.url for row in found.needed if row.url is not None and row.commit is None})
    if ask_remotes and urls:
        index = merged([index, remote_releases(urls)])
        found = resolve_packs(nodes, schema, index=index, choices=choices, run=run)
    return found
