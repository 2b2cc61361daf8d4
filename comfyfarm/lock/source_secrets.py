"""Sources with a password or token in them: a lock is made to be committed, and such a thing is not."""

from collections.abc import Iterator

from comfyfarm.addresses import is_address, mask
from comfyfarm.lock.lockfile import Lock
from comfyfarm.workflow.findings import Finding, warning


def secret_findings(lock: Lock) -> Iterator[Finding]:
    """One warning for each such source. It stays in the lock: nothing else may be able to fetch the file."""
    for model in lock.models:
        for source in dict.fromkeys(model.sources):
            if has_secret(source):
                message = f"{model.title}: its source {mask(source)[:200]} holds a login, token or signature"
                remedy = (
                    "before the lock is committed, take it out of the catalogue and give it to the hosts "
                    "(a mirror, or credentials of the environment)"
                )
                yield warning("secret_in_source", message, remedy, field="sources")


def has_secret(source: str) -> bool:
    """Whether an address is printed otherwise than it is written, for what must not be seen."""
    is_printable = source.encode(errors="backslashreplace").decode() == source
    return is_address(source) and is_printable and mask(source) != source
