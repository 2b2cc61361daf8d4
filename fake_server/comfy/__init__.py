"""A fake ComfyUI 0.27: the real routes, messages, files and accidents, without a GPU and without a model."""

from fake_server.comfy.app import FakeComfy
from fake_server.comfy.behaviours import Behaviour
from fake_server.comfy.extra_nodes import ExtraNodes
from fake_server.comfy.script import BadScript

__all__ = ["BadScript", "Behaviour", "ExtraNodes", "FakeComfy"]
