"""Nodes with and without words about their pack, and small class maps."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from comfyfarm.ids import NodeId
from comfyfarm.workflow.file_node import FileNode, PackHint
from comfyfarm.workflow.packs.index import InstalledPack, PackIndex, grouped, unique_repos

HOST = "https://github.com/"


class Packs:
    """Makes small values; handed out by a fixture, since test modules do not import each other."""

    def node(
        self,
        class_type: str,
        *,
        id: str = "1",
        cnr: str | None = None,
        aux: str | None = None,
        ver: str | None = None,
        active: bool = True,
    ) -> FileNode:
        hint = PackHint(cnr, aux, ver) if cnr or aux or ver else None
        return FileNode(NodeId(id), class_type, {}, active, pack=hint)

    def index(
        self,
        claims: Mapping[str, tuple[str, ...]] | None = None,
        *,
        ids: Mapping[str, str] | None = None,
        preempted: Mapping[str, str] | None = None,
        installed: tuple[InstalledPack, ...] = (),
    ) -> PackIndex:
        """`claims`: classes by `user/repo`."""
        pairs = [(name, HOST + repo) for repo, names in (claims or {}).items() for name in names]
        listed = [(pack_id, HOST + repo) for pack_id, repo in (ids or {}).items()]
        return PackIndex(
            classes=grouped(pairs),
            preempted=grouped((name, HOST + repo) for name, repo in (preempted or {}).items()),
            ids=grouped(listed),
            repos=unique_repos(url for _, url in [*pairs, *listed]),
            installed=installed,
        )

    def truth(self, folder: Path) -> list[Path]:
        return sorted(folder.glob("*.truth.json"))


@pytest.fixture(scope="session")
def packs() -> Packs:
    return Packs()
