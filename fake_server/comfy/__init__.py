"""A fake ComfyUI 0.27: the real routes, messages, files and accidents, without a GPU and without a model."""

from fake_server.comfy.app import ExtraNodes, FakeComfy
from fake_server.comfy.script import BadScript, Behaviour

__all__ = ["BadScript", "Behaviour", "ExtraNodes", "FakeComfy"]
