"""A real S3 server and an output store of each kind."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import SecretStr

from comfyfarm.cache.places.objects import ObjectPlace, S3Access, open_place
from comfyfarm.outputs.store import open_output_store
from infra.s3_server import S3Server, s3_server


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A real S3 server, one for all tests of the outputs."""
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(params=["folder", "bucket"])
def out(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, S3Access | None]:
    """Address of an output store of each kind, with the credentials it takes."""
    if request.param == "folder":
        return str(tmp_path / "out"), None
    s3: S3Server = request.getfixturevalue("s3")
    access = S3Access(endpoint=s3.endpoint, access_key=s3.access_key, secret=SecretStr(s3.secret_key))
    return f"s3://{s3.bucket}/{tmp_path.name}", access


@pytest.fixture
def store(out: tuple[str, S3Access | None]) -> ObjectPlace:
    """The output store."""
    return open_output_store(out[0], access=out[1])


@pytest.fixture
def seen(out: tuple[str, S3Access | None]) -> ObjectPlace:
    """The same place, as somebody else looks into it."""
    return open_place(out[0], access=out[1])
