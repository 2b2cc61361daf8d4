"""The Python requirements of the packs that a graph needs, from a folder of checkouts."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from comfyfarm.errors import UsageError
from comfyfarm.lock.environment import COMFYUI
from comfyfarm.lock.requirement_lines import (
    PackRequirements,
    commit_reader,
    folder_reader,
    read_requirements,
)
from comfyfarm.workflow.findings import warning
from comfyfarm.workflow.packs.index import InstalledPack, PackIndex
from comfyfarm.workflow.packs.pack import Pack


def comfyui_requirements(folder: Path) -> PackRequirements:
    """ComfyUI's own, from its folder.

    Raises:
        UsageError: it has none there.
    """
    found = read_requirements(folder_reader(folder), pack=COMFYUI)
    if "requirements.txt" not in found.digests:
        raise UsageError(f"{folder}: no ComfyUI, which has a requirements.txt; name its folder")
    return found


def requirements_of(
    packs: Iterable[Pack], index: PackIndex, custom_nodes: Path
) -> tuple[PackRequirements, ...]:
    """Those of each pack once, as they are at its commit where a checkout has it."""
    once = {(pack.url or "", pack.pack): pack for pack in packs if pack.pack is not None}
    return tuple(_of_pack(pack, index, custom_nodes) for pack in once.values())


def _of_pack(pack: Pack, index: PackIndex, custom_nodes: Path) -> PackRequirements:
    name = pack.pack or ""
    found = next(_checkouts(pack, index, custom_nodes), None)
    if found is None:
        return _unread(name, "no checkout of it is at hand")
    installed, folder = found
    if pack.commit is None or pack.commit == installed.commit:
        return read_requirements(folder_reader(folder), pack=name)
    if pack.commit in installed.history:
        return read_requirements(commit_reader(folder, pack.commit), pack=name)
    return _unread(name, f"its checkout does not have the commit {pack.commit[:12]}")


def _checkouts(pack: Pack, index: PackIndex, custom_nodes: Path) -> Iterator[tuple[InstalledPack, Path]]:
    packs = index.installed_at(pack.url) if pack.url is not None else index.find_installed(pack.pack or "")
    for installed in packs:
        for folder in (installed.folder, f"{installed.folder}.disabled"):
            if (custom_nodes / folder).is_dir():
                yield installed, custom_nodes / folder


def _unread(name: str, why: str) -> PackRequirements:
    finding = warning(
        "pack_requirements_unknown",
        f"the Python requirements of {name} are not known: {why}",
        "give a folder of checkouts (--custom-nodes DIR) that has it",
    )
    return PackRequirements(name, findings=(finding,))
