"""Digests, entries and references to resolve."""

import hashlib
from typing import Any

import pytest

from comfyfarm.ids import NodeId
from comfyfarm.lock.catalogue import Catalogue, CatalogueEntry, collect
from comfyfarm.workflow.references.find import Kind, Reference, References


class Samples:
    """Makes small values; handed out by a fixture, since test modules do not import each other."""

    def sha(self, text: str) -> str:
        return hashlib.sha256(text.encode()).hexdigest()

    def entry(self, folder: str, path: str, *, content: str = "x", **more: Any) -> CatalogueEntry:
        return CatalogueEntry(folder=folder, path=path, sha256=self.sha(content), size=len(content), **more)

    def catalogue(self, *entries: CatalogueEntry) -> Catalogue:
        return collect(entries)

    def reference(
        self, folder: str | None, path: str, *, kind: Kind = Kind.FILE, node: str = "4", active: bool = True
    ) -> Reference:
        return Reference(
            node=NodeId(node),
            class_type="Loader",
            input="name",
            name=path,
            folder=folder,
            path=path,
            kind=kind,
            active=active,
        )

    def references(self, *references: Reference) -> References:
        return References(references=references)


@pytest.fixture(scope="session")
def sample() -> Samples:
    return Samples()
