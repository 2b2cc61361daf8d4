"""The routes that only tell: node classes, models, the system, features.

Source: facts of ComfyUI 0.27, sections 12 and 13; [rec: listings, methods].
"""

import platform
from typing import Any

from aiohttp import web

from fake_server.comfy.answers import json_answer
from fake_server.comfy.folders import ModelFolders
from fake_server.comfy.schema import NodeClasses
from fake_server.comfy.sockets import FEATURES

_GIB = 2**30
_VERSION = "0.27.0"
_LEGACY = frozenset({"unet", "clip", "t2i_adapter"})


class ListRoutes:
    """Handlers that read."""

    def __init__(self, *, classes: NodeClasses, folders: ModelFolders, device: str, argv: list[str]) -> None:
        self._classes = classes
        self._folders = folders
        self._device = device
        self._argv = argv

    def routes(self) -> list[web.RouteDef]:
        """The routes that exist bare and under /api."""
        return [
            web.get("/object_info", self.object_info),
            web.get("/object_info/{node_class}", self.object_info),
            web.get("/models", self.model_folders),
            web.get("/models/{folder}", self.models),
            web.get("/embeddings", self.embeddings),
            web.get("/system_stats", self.system_stats),
            web.get("/features", self.features),
        ]

    async def object_info(self, request: web.Request) -> web.Response:
        """All node classes, or one."""
        return json_answer(self._classes.object_info(request.match_info.get("node_class")))

    async def model_folders(self, _request: web.Request) -> web.Response:
        """The keys of the models folders."""
        return json_answer(list(self._folders.paths))

    async def models(self, request: web.Request) -> web.Response:
        """The files under one key; old names of keys are unknown here."""
        folder = request.match_info["folder"]
        names = None if folder in _LEGACY else self._folders.names(folder)
        return web.Response(status=404) if names is None else json_answer(names)

    async def embeddings(self, _request: web.Request) -> web.Response:
        """The embeddings, without their extension."""
        return json_answer(self._folders.embeddings())

    async def system_stats(self, _request: web.Request) -> web.Response:
        """The system and its one device."""
        return json_answer({"system": self._system(), "devices": [self._device_entry()]})

    async def features(self, _request: web.Request) -> web.Response:
        """What the server can do."""
        return json_answer(FEATURES)

    def _system(self) -> dict[str, Any]:
        return {
            "os": "linux",
            "ram_total": 24 * _GIB,
            "ram_free": 18 * _GIB,
            "comfyui_version": _VERSION,
            "required_frontend_version": "1.45.20",
            "installed_templates_version": "0.11.6",
            "required_templates_version": "0.11.6",
            "comfy_package_versions": [],
            "python_version": platform.python_version(),
            "pytorch_version": "2.14.1+cu130",
            "embedded_python": False,
            "deploy_environment": "local-git",
            "argv": self._argv,
        }

    def _device_entry(self) -> dict[str, Any]:
        cpu = self._device == "cpu"
        total = 24 * _GIB
        return {
            "name": "cpu" if cpu else f"cuda:0 {self._device} : cudaMallocAsync",
            "type": "cpu" if cpu else "cuda",
            "index": None if cpu else 0,
            "vram_total": total,
            "vram_free": total - _GIB,
            "torch_vram_total": total if cpu else 0,
            "torch_vram_free": total - _GIB if cpu else 0,
        }
