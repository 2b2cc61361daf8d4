"""Places for files with the credentials that they need: the mirror, and where outputs go."""

from pydantic import Field, SecretStr

from blocks.named_block import NamedBlock
from comfyfarm.cache.places.objects import S3Access


class ObjectAccess(NamedBlock):
    """An address, and credentials when it is an S3-compatible bucket."""

    _is_abstract = True

    address: str = Field(title="Address", description="A folder, or s3://bucket/prefix.")
    endpoint: str | None = Field(
        default=None, title="Endpoint", description="For R2, MinIO and the like; empty for AWS itself."
    )
    region: str = Field(default="us-east-1", title="Region", description="The bucket's region.")
    access_key: str | None = Field(default=None, title="Access key", description="Its id, no secret.")
    secret_key: SecretStr | None = Field(default=None, title="Secret key", description="Kept encrypted.")
    session_token: SecretStr | None = Field(
        default=None, title="Session token", description="For temporary credentials only."
    )

    def access(self) -> S3Access | None:
        """The credentials as the core takes them; None when the environment has them."""
        if self.access_key is None or self.secret_key is None:
            return None
        return S3Access(
            endpoint=self.endpoint,
            access_key=self.access_key,
            secret=self.secret_key,
            session_token=self.session_token,
            region=self.region,
        )


class Mirror(ObjectAccess):
    """Where model files come from."""

    _block_type_name = "Model Mirror"
    _block_type_slug = "mirror"
    _description = "A bucket or folder with model files under their SHA-256."


class OutputStore(ObjectAccess):
    """Where outputs go."""

    _block_type_name = "Output Store"
    _block_type_slug = "output-store"
    _description = "A bucket or folder for the outputs of finished jobs."
