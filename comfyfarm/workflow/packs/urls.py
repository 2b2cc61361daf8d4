"""Addresses of git repositories, as they are compared and printed: one form, without any login."""

import re
from urllib.parse import unquote, urlsplit

from comfyfarm.addresses import is_address, mask

_AUX_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}/[A-Za-z0-9_.-]{1,100}")
_SCP = re.compile(r"(?:[\w.-]+@)?([\w-]+(?:\.[\w-]+)+):(?!//)([\w.~/-]+)")
_SCHEMES = {"https", "http", "ssh", "git"}
_TWO_PARTS = {"github.com", "gitlab.com", "gitee.com", "codeberg.org", "bitbucket.org"}
_COMMIT_SUFFIX = re.compile(r"(?i)[@#]([0-9a-f]{40})$")
_MOST = 500
_WEB = "https://"


def repo_url(text: str) -> str | None:
    """The https address of a repository, from any form that git takes; None when it is none.

    A login, query or fragment is dropped, and at the large hosts all that stands behind the repository.
    """
    text = text.strip().removeprefix("git+")
    scp = _SCP.fullmatch(text)
    if scp is not None:
        text = f"https://{scp[1]}/{scp[2]}"
    if len(text) > _MOST:
        return None
    try:
        parts = urlsplit(text)
        host = (parts.hostname or "").removeprefix("www.")
        port = "" if parts.port is None or parts.scheme == "ssh" else f":{parts.port}"
    except ValueError:
        return None
    path = [unquote(part) for part in parts.path.split("/") if part]
    if parts.scheme not in _SCHEMES or not host or not path:
        return None
    return f"{_scheme(parts.scheme)}://{host}{port}/{_tail(host, path)}"


def repo_key(url: str) -> str:
    """What two spellings of one repository have in common. Hosts ignore case in names."""
    return url.partition("://")[2].lower()


def repo_name(url: str) -> str:
    """The last part of the address, which is also the folder that `git clone` makes."""
    return url.rpartition("/")[2]


def from_aux_id(aux_id: str) -> str | None:
    """The address that a node's `aux_id` means, which is `user/repo` of GitHub; None for another form."""
    aux_id = aux_id.strip().removesuffix(".git")
    return f"https://github.com/{aux_id}" if _AUX_ID.fullmatch(aux_id) else None


def masked_id(text: str) -> str:
    """What a node says of its pack, as it may be printed: some write an address with a login there."""
    if is_address(text):
        return mask(text)
    _, at, behind = text.rpartition("@")  # a login, which without a scheme looks like any name
    return ("***@" if at else "") + mask(f"{_WEB}{behind}").removeprefix(_WEB)


def split_commit(text: str) -> tuple[str, str | None]:
    """An address and the commit behind it, as in `https://host/user/repo@<40 hex digits>`."""
    found = _COMMIT_SUFFIX.search(text)
    return (text, None) if found is None else (text[: found.start()], found[1].lower())


def _scheme(scheme: str) -> str:
    return "http" if scheme == "http" else "https"


def _tail(host: str, path: list[str]) -> str:
    kept = path[:2] if host in _TWO_PARTS else path
    return "/".join(kept).removesuffix(".git")
