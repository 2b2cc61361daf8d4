"""Output nodes end to end: a graph goes in, its files come out under the right keys."""

import io
import json
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from PIL import Image

from comfyfarm.clock import pause
from fake_server.comfy import FakeComfy
from fake_server.serve import serve

IMAGE = {"class_type": "EmptyImage", "inputs": {"width": 16, "height": 8, "batch_size": 2, "color": 1}}
AUDIO = {"class_type": "EmptyAudio", "inputs": {"duration": 1.0, "sample_rate": 8000, "channels": 1}}


class Server:
    def __init__(self, fake: FakeComfy, url: str) -> None:
        self.fake = fake
        self.url = url

    def call(self, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(urllib.request.Request(self.url + path, data)) as answer:  # noqa: S310
            return json.load(answer)

    def run(self, graph: dict[str, Any], **fields: Any) -> dict[str, Any]:
        """Run a graph and return its history entry."""
        answer = self.call("/prompt", {"prompt": graph, "client_id": "nobody", **fields})
        assert answer["node_errors"] == {}
        until = time.monotonic() + 20
        while not (history := self.call(f"/history/{answer['prompt_id']}")):
            assert time.monotonic() < until
            pause(0.005)
        return dict(history[answer["prompt_id"]])

    def view(self, entry: dict[str, str]) -> bytes:
        with urllib.request.urlopen(f"{self.url}/view?{urlencode(entry)}") as answer:  # noqa: S310
            content: bytes = answer.read()
            return content


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    fake = FakeComfy(models_dir=tmp_path / "models")
    with serve(fake.app) as url:
        yield Server(fake, url)


def _saving(class_type: str, source: dict[str, Any], **inputs: Any) -> dict[str, Any]:
    return {"1": source, "9": {"class_type": class_type, "inputs": inputs}}


def _graph(class_type: str) -> dict[str, Any]:
    image, audio, prefix = {"images": ["1", 0]}, {"audio": ["1", 0]}, {"filename_prefix": "job/sub/name"}
    svg = {"class_type": "RecraftVectorizeImageNode", "inputs": {"image": ["2", 0]}}
    mesh = {
        "class_type": "VoxelToMesh",
        "inputs": {"voxel": ["2", 0], "algorithm": "basic", "threshold": 0.6},
    }
    voxel = {
        "class_type": "VAEDecodeHunyuan3D",
        "inputs": {"samples": ["3", 0], "vae": ["4", 0], "num_chunks": 8000, "octree_resolution": 256},
    }
    return {
        "SaveImage": _saving("SaveImage", IMAGE, **image, **prefix),
        "SaveAnimatedWEBP": _saving(
            "SaveAnimatedWEBP", IMAGE, **image, **prefix, fps=6.0, lossless=True, quality=80, method="default"
        ),
        "SaveWEBM": _saving("SaveWEBM", IMAGE, **image, **prefix, codec="vp9", fps=24.0, crf=32.0),
        "SaveVideo": {
            **_saving("SaveVideo", IMAGE, video=["2", 0], **prefix, format="auto", codec="auto"),
            "2": {"class_type": "CreateVideo", "inputs": {"images": ["1", 0], "fps": 6.0}},
        },
        "SaveAudio": _saving("SaveAudio", AUDIO, **audio, **prefix),
        "SaveAudioMP3": _saving("SaveAudioMP3", AUDIO, **audio, **prefix, quality="V0"),
        "SaveAudioOpus": _saving("SaveAudioOpus", AUDIO, **audio, **prefix, quality="128k"),
        "SaveSVGNode": {**_saving("SaveSVGNode", svg, svg=["1", 0], **prefix), "2": IMAGE},
        "SaveGLB": {
            **_saving("SaveGLB", mesh, mesh=["1", 0], **prefix),
            "2": voxel,
            "3": {"class_type": "EmptyLatentHunyuan3Dv2", "inputs": {"resolution": 3072, "batch_size": 1}},
            "4": {"class_type": "VAELoader", "inputs": {"vae_name": "pixel_space"}},
        },
    }[class_type]


@pytest.mark.parametrize(
    ("class_type", "key", "name", "start"),
    [
        ("SaveImage", "images", "name_00001_.png", b"\x89PNG"),
        ("SaveAnimatedWEBP", "images", "name_00001_.webp", b"RIFF"),
        ("SaveWEBM", "images", "name_00001_.webm", b"\x1a\x45\xdf\xa3"),
        ("SaveVideo", "images", "name_00001_.mp4", b"\x00\x00\x00\x20ftyp"),
        ("SaveAudio", "audio", "name_00001.flac", b"fLaC"),
        ("SaveAudioMP3", "audio", "name_00001.mp3", b"ID3"),
        ("SaveAudioOpus", "audio", "name_00001.opus", b"OggS"),
        ("SaveSVGNode", "images", "name_00001_.svg", b"<svg"),
        ("SaveGLB", "3d", "name_00001_.glb", b"glTF"),
    ],
)
def test_a_save_node_writes_a_true_file(
    server: Server, class_type: str, key: str, name: str, start: bytes
) -> None:
    outputs = server.run(_graph(class_type))["outputs"]["9"]

    entry = outputs[key][0]
    assert entry == {"filename": name, "subfolder": "job/sub", "type": "output"}
    assert server.view(entry).startswith(start)
    assert (server.fake.output_dir / "job" / "sub" / name).is_file()


def test_a_saved_picture_carries_its_graph_and_depends_on_its_inputs(server: Server) -> None:
    graph = _saving("SaveImage", IMAGE, images=["1", 0], filename_prefix="a")
    other = json.loads(json.dumps(graph).replace('"color": 1', '"color": 2'))
    extra = {"extra_pnginfo": {"workflow": {"id": "w"}}}

    first = server.run(graph, extra_data=extra)["outputs"]["9"]["images"]
    second = server.run(other)["outputs"]["9"]["images"]

    assert [each["filename"] for each in first + second] == [
        f"a_0000{number}_.png" for number in (1, 2, 3, 4)
    ]
    pictures = [Image.open(io.BytesIO(server.view(each))) for each in first + second]
    assert json.loads(pictures[0].info["prompt"])["9"]["class_type"] == "SaveImage"
    assert json.loads(pictures[0].info["workflow"]) == {"id": "w"}
    assert {picture.size for picture in pictures} == {(16, 8)}
    assert len({picture.tobytes() for picture in pictures}) == 4


def test_a_prefix_outside_the_output_folder_is_a_node_error(server: Server) -> None:
    entry = server.run(_saving("SaveImage", IMAGE, images=["1", 0], filename_prefix="../../escape"))

    name, data = entry["status"]["messages"][-1]
    assert (name, data["exception_type"]) == ("execution_error", "Exception")
    assert data["exception_message"].startswith(
        "**** ERROR: Saving image outside the output folder is not allowed."
    )


def test_a_sampler_reports_its_steps_and_an_unchanged_graph_is_cached(server: Server, tmp_path: Path) -> None:
    (tmp_path / "models" / "checkpoints").mkdir()
    (tmp_path / "models" / "checkpoints" / "m.safetensors").touch()
    text = {"class_type": "CLIPTextEncode", "inputs": {"text": "a", "clip": ["1", 1]}}
    sampler = {
        "seed": 1,
        "steps": 3,
        "cfg": 8.0,
        "sampler_name": "euler",
        "scheduler": "normal",
        "denoise": 1.0,
    }
    links = {"model": ["1", 0], "positive": ["2", 0], "negative": ["2", 0], "latent_image": ["3", 0]}
    latent = {"width": 64, "height": 32, "batch_size": 1}
    graph = {
        "1": {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": "m.safetensors"}},
        "2": text,
        "3": {"class_type": "EmptyLatentImage", "inputs": latent},
        "4": {"class_type": "KSampler", "inputs": {**sampler, **links}},
        "5": {"class_type": "VAEDecode", "inputs": {"samples": ["4", 0], "vae": ["1", 2]}},
        "6": {"class_type": "SaveImage", "inputs": {"images": ["5", 0], "filename_prefix": "x"}},
    }

    first, second = server.run(graph), server.run(graph)

    assert first["outputs"] == second["outputs"]
    assert dict(second["status"]["messages"])["execution_cached"]["nodes"] == list("123456")
    with Image.open(io.BytesIO(server.view(first["outputs"]["6"]["images"][0]))) as image:
        assert image.size == (64, 32)


def test_system_stats_names_the_device() -> None:
    fake = FakeComfy(device="NVIDIA GeForce RTX 4090")
    with serve(fake.app) as url:
        (device,) = Server(fake, url).call("/system_stats")["devices"]

    assert (device["type"], device["index"]) == ("cuda", 0)
    assert "NVIDIA GeForce RTX 4090" in device["name"]


def test_the_shipped_schema_is_served_with_this_servers_files(server: Server, tmp_path: Path) -> None:
    (tmp_path / "models" / "vae").mkdir()
    (tmp_path / "models" / "vae" / "v.safetensors").touch()
    (server.fake.input_dir / "in.png").touch()

    everything = server.call("/object_info")

    assert len(everything) == 800
    assert everything["VAELoader"]["input"]["required"]["vae_name"][0] == ["v.safetensors", "pixel_space"]
    assert everything["LoadImage"]["input"]["required"]["image"][0] == ["in.png"]
    assert server.call("/object_info/NoSuchNode") == {}
