"""A GPU host: its servers and where it keeps models."""

from pathlib import Path

from pydantic import Field

from blocks.named_block import NamedBlock


class ComfyHost(NamedBlock):
    """A machine with ComfyUI servers; the block's name is the host's, as in the tag `gpu:<host>`."""

    _block_type_name = "Comfy Host"
    _block_type_slug = "comfy-host"
    _description = "A GPU host: its ComfyUI servers, its cache of model files, its models folder."

    servers: list[str] = Field(
        title="Servers", description="Base addresses of its ComfyUI servers, such as http://127.0.0.1:8188."
    )
    cache_dir: Path | None = Field(
        default=None, title="Cache", description="Folder for model files; empty for the user's own."
    )
    models_dir: Path | None = Field(
        default=None,
        title="Models folder",
        description="Where the servers look for models; empty when nothing is to be downloaded.",
    )
    inputs_dir: Path | None = Field(
        default=None, title="Inputs", description="Folder of input images, audio and video."
    )
