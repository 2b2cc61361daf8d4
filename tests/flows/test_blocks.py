"""The blocks: what they hide, what they hand to the core, what they say when one is missing."""

import pytest
from pydantic import SecretStr

from blocks.comfy_host import ComfyHost
from blocks.farm_ledger import FarmLedger
from blocks.object_access import Mirror, OutputStore
from comfyfarm.errors import UsageError
from deployments.farm_blocks import TYPES


def test_every_field_of_a_block_has_a_title_and_a_description() -> None:
    for kind in TYPES:
        for name, field in kind.model_fields.items():
            assert field.title, f"{kind.__name__}.{name}"
            assert field.description is not None, f"{kind.__name__}.{name}"
            assert field.description.endswith("."), f"{kind.__name__}.{name}"


def test_the_slugs_are_those_that_parameters_name() -> None:
    slugs = {kind.get_block_type_slug() for kind in TYPES}

    assert slugs == {"comfy-host", "ledger", "mirror", "output-store"}


def test_a_bucket_block_hands_its_credentials_to_the_core() -> None:
    store = OutputStore(
        address="s3://bucket/out",
        endpoint="http://s3",
        region="eu-1",
        access_key="id",
        secret_key=SecretStr("secret"),
        session_token=SecretStr("token"),
    )

    access = store.access()

    assert access is not None
    assert (access.endpoint, access.access_key, access.region) == ("http://s3", "id", "eu-1")
    assert access.secret.get_secret_value() == "secret"
    assert access.session_token is not None
    assert "secret" not in repr(store).replace("secret_key", "")


def test_without_a_key_the_environment_is_asked() -> None:
    assert Mirror(address="/models").access() is None


@pytest.mark.prefect
@pytest.mark.timeout(180)
@pytest.mark.usefixtures("prefect_api")
async def test_a_missing_block_is_named_with_the_way_to_make_it() -> None:
    with pytest.raises(UsageError, match=r"ledger/none-such.*deploy\.py"):
        await FarmLedger.named("none-such")


@pytest.mark.prefect
@pytest.mark.timeout(180)
@pytest.mark.usefixtures("prefect_api")
async def test_a_saved_block_comes_back_by_its_name() -> None:
    await ComfyHost(servers=["http://127.0.0.1:8188"]).save("block-test", overwrite=True)

    assert (await ComfyHost.named("block-test")).servers == ["http://127.0.0.1:8188"]
