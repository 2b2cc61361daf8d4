"""Sources with secrets in them are told, and the secret is not."""

import pytest

from comfyfarm.lock.lockfile import Lock, LockedModel
from comfyfarm.lock.source_secrets import has_secret, secret_findings


@pytest.mark.parametrize(
    ("source", "is_one"),
    [
        ("https://user:hunter2@h/x", True),
        ("https://hunter2@h/x", True),
        ("https://h/x?token=hunter2", True),
        ("https://b.s3.amazonaws.com/x?X-Amz-Signature=hunter2&X-Amz-Expires=9", True),
        ("s3://bucket/x", False),
        ("https://h/x?download=true", False),
        ("https://h/a@b/x", False),
        ("/models/u:p@h/x", False),
        ("file:///models/\udcff", False),
    ],
)
def test_a_login_token_or_signature_is_one(source: str, is_one: bool) -> None:
    assert has_secret(source) == is_one


def test_each_is_told_once_without_the_secret() -> None:
    sources = ("https://user:hunter2@h/x", "https://user:hunter2@h/x", "https://h/x")
    model = LockedModel(folder="vae", path="x.pt", sha256="a" * 64, size=1, sources=sources)
    (told,) = secret_findings(Lock(models=(model,)))

    assert (told.code, told.severity) == ("secret_in_source", "warning")
    assert "vae/x.pt" in told.message
    assert "https://***@h/x" in told.message
    assert "hunter2" not in str(told)
