"""Class → pack → address and commit, for every class of a file that is not ComfyUI's own."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from comfyfarm.workflow.file_node import FileNode
from comfyfarm.workflow.findings import Finding, error, info, warning
from comfyfarm.workflow.packs.index import PackIndex
from comfyfarm.workflow.packs.pack import Pack, PackResolution
from comfyfarm.workflow.packs.pinning import pin
from comfyfarm.workflow.packs.placing import Place, hint_id, place_all
from comfyfarm.workflow.packs.urls import from_aux_id, masked_id
from comfyfarm.workflow.packs.uses import Use, uses_of
from comfyfarm.workflow.schema import NodeSchema
from comfyfarm.workflow.shown import shown

NO_INDEX: Final = PackIndex()
_NO_CHOICES: Final[Mapping[str, str]] = MappingProxyType({})
_MOST_SHOWN = 6
_LONGEST_NAME = 80


def resolve_packs(
    nodes: Iterable[FileNode],
    schema: NodeSchema,
    *,
    index: PackIndex = NO_INDEX,
    choices: Mapping[str, str] = _NO_CHOICES,
    run: Collection[str] | None = None,
) -> PackResolution:
    """Which pack each class comes from; what is not known is said in findings.

    `choices`: address by class, with `@<commit>` behind it if wanted; a choice wins over everything.
    `run`: the classes of the graph that a server gets, without those that the editor resolves by itself;
    None for all of active nodes. Others are placed as well, but nothing stops for them.
    """
    uses = uses_of(nodes, schema, index, run=run)
    places = place_all(uses, schema, index, choices)
    commits, pin_findings = _pin_all(uses, places, index)
    rows = {use.class_type: _row(use, places[use.class_type], commits) for use in uses}
    findings = (finding for use in uses for finding in _findings(use, places[use.class_type], index))
    return PackResolution(
        packs=tuple(rows.values()),
        findings=(*findings, *pin_findings),
        needed=tuple(rows[use.class_type] for use in uses if use.is_run),
    )


def _pin_all(
    uses: Sequence[Use], places: Mapping[str, Place], index: PackIndex
) -> tuple[dict[str, str | None], list[Finding]]:
    groups: dict[str, list[tuple[Use, Place]]] = {}
    for use in uses:
        key = places[use.class_type].key
        if key is not None and places[use.class_type].source is not None:
            groups.setdefault(key, []).append((use, places[use.class_type]))
    commits: dict[str, str | None] = {}
    findings: list[Finding] = []
    for key, members in groups.items():
        pinned = pin(members, index)
        commits[key] = pinned.commit
        if any(use.is_run for use, _ in members):
            findings.extend(pinned.findings)
    return commits, findings


def _row(use: Use, place: Place, commits: Mapping[str, str | None]) -> Pack:
    return Pack(
        class_type=use.class_type,
        pack=place.name,
        url=place.url,
        commit=commits.get(place.key) if place.key is not None else None,
        source=place.source,
    )


def _findings(use: Use, place: Place, index: PackIndex) -> Iterator[Finding]:
    yield from _bad_ids(use)
    if place.candidates:
        yield _ambiguous(use, place)
    elif place.source is None:
        yield _no_pack(use, index)
    elif place.url is None:
        yield _no_address(use, place)


def _ambiguous(use: Use, place: Place) -> Finding:
    named = ", ".join(place.candidates[:_MOST_SHOWN])
    more = len(place.candidates) - _MOST_SHOWN
    tail = f" and {more} more" if more > 0 else ""
    make = error if use.is_run else warning
    return make(
        "ambiguous_pack",
        f"the class {shown(use.class_type, most=_LONGEST_NAME)} is in {len(place.candidates)} node packs: "
        f"{named}{tail}",
        f'choose one in comfyfarm.toml: [packs] {use.toml_key} = "{place.candidates[0]}"',
        node=use.node,
        field="class_type",
    )


def _no_pack(use: Use, index: PackIndex) -> Finding:
    alike = index.alike(use.class_type)
    hint = f" (by its name perhaps {alike})" if alike is not None else ""
    help_ = "name it in comfyfarm.toml under [packs]"
    if not index.has_classes:
        help_ = f"give a class map (--node-map FILE|WHEEL, such as the wheel of comfyui-manager), or {help_}"
    make = warning if use.is_run else info
    return make(
        "no_pack",
        f"nothing says which node pack has the class {shown(use.class_type, most=_LONGEST_NAME)}{hint}",
        f"{help_}, or ask a server that has it (--schema-from URL)",
        node=use.node,
        field="class_type",
    )


def _no_address(use: Use, place: Place) -> Finding:
    make = warning if use.is_run else info
    return make(
        "pack_url_unknown",
        f"the class {shown(use.class_type, most=_LONGEST_NAME)} is of the node pack "
        f"{shown(place.name or '', most=_LONGEST_NAME)}, whose repository is not known",
        "give a list of packs (--node-map FILE|WHEEL) or checkouts (--custom-nodes DIR), or name its "
        "address in comfyfarm.toml under [packs]",
        node=use.node,
        field="cnr_id",
    )


def _bad_ids(use: Use) -> Iterator[Finding]:
    """Ids that can be none; they are passed over."""
    for hint in dict.fromkeys(use.hints):
        ids = {
            "cnr_id": hint.cnr_id if hint.cnr_id and hint_id(hint) is None else None,
            "aux_id": hint.aux_id if hint.aux_id and from_aux_id(hint.aux_id) is None else None,
        }
        for field, text in ids.items():
            if text is not None:
                message = f"{field} is {shown(masked_id(text), most=_LONGEST_NAME)}, which names no node pack"
                yield info("bad_pack_id", message, "it is passed over", node=use.node, field=field)
