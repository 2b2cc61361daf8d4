"""The registry of node packs: which repository an id means.

It gives an archive of each version and no commit, so that a release is looked up in the repository's tags.
Source: the registry's API reference, `GET /nodes/{nodeId}`.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from comfyfarm.addresses import mask
from comfyfarm.errors import TryLater, UsageError
from comfyfarm.workflow.packs.index import PackIndex, grouped, unique_repos
from comfyfarm.workflow.packs.urls import repo_url

if TYPE_CHECKING:  # 0.1 s that only this module's callers pay
    import httpx

_TIMEOUT_S: Final = 15.0
_NOT_FOUND = 404
_OK = 200


def ask_registry(base_url: str, ids: Iterable[str]) -> PackIndex:
    """The repositories of these ids; what the registry does not know is left out.

    Raises:
        TryLater: it does not answer, or not as a registry would.
        UsageError: `base_url` is no address.
    """
    import httpx

    if not base_url.startswith(("https://", "http://")):
        raise UsageError(f"--registry {mask(base_url)[:80]!r} is no address; write https://…")
    try:
        with httpx.Client(base_url=base_url.rstrip("/"), timeout=_TIMEOUT_S) as client:
            pairs = list(_repositories(client, dict.fromkeys(ids), mask(base_url)))
    except (httpx.HTTPError, httpx.InvalidURL) as exc:
        raise TryLater(f"the registry {mask(base_url)} did not answer: {type(exc).__name__}") from exc
    return PackIndex(ids=grouped(pairs), repos=unique_repos(url for _, url in pairs))


def _repositories(client: "httpx.Client", ids: Iterable[str], shown: str) -> Iterator[tuple[str, str]]:
    for pack_id in ids:
        response = client.get(f"/nodes/{quote(pack_id, safe='')}")
        if response.status_code == _NOT_FOUND:
            continue
        if response.status_code != _OK:
            raise TryLater(f"the registry {shown} answered {response.status_code} for {pack_id[:80]!r}")
        url = _repository(response)
        if url is not None:
            yield pack_id.lower(), url


def _repository(response: "httpx.Response") -> str | None:
    try:
        raw: Any = response.json()
    except (ValueError, RecursionError):
        return None
    address = raw.get("repository") if isinstance(raw, dict) else None
    return repo_url(address) if isinstance(address, str) else None
