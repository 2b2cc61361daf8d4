"""Policy: which node classes, node packs and pickled model files a farm lets in."""

import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase

from pydantic import BaseModel, ConfigDict

from comfyfarm.ids import Sha256
from comfyfarm.workflow.editor_nodes import is_never_run, is_template
from comfyfarm.workflow.file_node import FileNode
from comfyfarm.workflow.findings import Finding, error
from comfyfarm.workflow.model_files import is_pickled
from comfyfarm.workflow.packs.pack import Pack, PackResolution
from comfyfarm.workflow.packs.urls import repo_key, repo_url
from comfyfarm.workflow.shown import shown


class Policy(BaseModel):
    """What is let in. None lets everything in, an empty list nothing."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    allow_classes: tuple[str, ...] | None = None
    """Node classes, ComfyUI's own among them; `*` and `?` stand for any signs."""
    allow_packs: tuple[str, ...] | None = None
    """Node packs by name, `user/repo` or address, capitals apart. ComfyUI's own nodes are always let in."""
    allow_pickle_sha256: tuple[Sha256, ...] | None = None
    """Contents of pickled model files."""


def policy_findings(
    nodes: Iterable[FileNode], packs: PackResolution, *, policy: Policy
) -> tuple[Finding, ...]:
    """The classes and packs of a file that the policy does not let in, once each, by their first node."""
    if policy.allow_classes is None and policy.allow_packs is None:
        return ()
    rows = {pack.class_type: pack for pack in packs.needed}
    first: dict[str, FileNode] = {}
    for node in nodes:
        if node.active and not is_never_run(node.class_type) and not is_template(node.class_type):
            first.setdefault(node.class_type, node)
    return tuple(
        finding
        for node in first.values()
        for finding in (
            *_class_findings(node, policy),
            *_pack_findings(node, rows.get(node.class_type), policy),
        )
    )


def pickle_findings(files: Iterable[tuple[str, str]], *, policy: Policy) -> tuple[Finding, ...]:
    """The pickled files among `files`, which are paths with their SHA-256, that the policy refuses."""
    if policy.allow_pickle_sha256 is None:
        return ()
    allowed = set(policy.allow_pickle_sha256)
    refused = {path: sha for path, sha in files if is_pickled(path) and sha.lower() not in allowed}
    return tuple(
        error(
            "pickle_refused",
            f"{path} is a pickled file, which runs code when it is loaded, and its content is not allowed",
            "use a .safetensors file, or, if you trust it, allow it in comfyfarm.toml: "
            f'[policy] allow_pickle_sha256 = ["{sha}"]',
        )
        for path, sha in refused.items()
    )


def _class_findings(node: FileNode, policy: Policy) -> Iterator[Finding]:
    allowed = policy.allow_classes
    if allowed is not None and not any(_matches(node.class_type, pattern) for pattern in allowed):
        yield error(
            "class_not_allowed",
            f"the policy does not allow the class {shown(node.class_type, most=80)}",
            "take the node out, or add the class to allow_classes in comfyfarm.toml",
            node=node.id,
            field="class_type",
        )


def _pack_findings(node: FileNode, pack: Pack | None, policy: Policy) -> Iterator[Finding]:
    if policy.allow_packs is None or pack is None or any(_allows(text, pack) for text in policy.allow_packs):
        return
    name = pack.url or pack.pack
    known = f"the node pack {name}" if name is not None else "a class whose node pack is not known"
    yield error(
        "pack_not_allowed",
        f"the policy does not allow {known} ({shown(node.class_type, most=80)})",
        "take the node out, or add the pack to allow_packs in comfyfarm.toml",
        node=node.id,
        field="class_type",
    )


def _allows(text: str, pack: Pack) -> bool:
    """Whether an entry of the list means the pack: by name, by `user/repo`, by address."""
    entry = repo_url(text)
    wanted = repo_key(entry) if entry is not None else text.strip().lower()
    return any(_matches(name, wanted) for name in _names(pack))


def _names(pack: Pack) -> Iterator[str]:
    if pack.pack is not None:
        yield pack.pack.lower()
    if pack.url is not None:
        key = repo_key(pack.url)
        yield key
        yield key.partition("/")[2]


def _matches(name: str, pattern: str) -> bool:
    """`*` and `?` only: names of classes hold brackets, which `fnmatch` takes for sets."""
    return name == pattern or fnmatchcase(name, re.sub(r"\[", "[[]", pattern))
