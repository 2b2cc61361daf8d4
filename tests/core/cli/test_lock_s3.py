"""`comfyfarm lock` against a mirror in a real S3 server: listed, read by ranges, verified."""

import hashlib
import json
import os
import struct
import subprocess
import sys
from pathlib import Path

from infra.s3_server import s3_server

COMMAND = [sys.executable, "-c", "from comfyfarm.cli import run; run()"]


def test_a_mirror_in_a_bucket_is_a_catalogue_with_headers(upscale: Path, tmp_path: Path) -> None:
    header = json.dumps({"w": {"dtype": "BF16", "shape": [4], "data_offsets": [0, 8]}}).encode()
    files = {"a.pth": b"a" * 300, "b.safetensors": struct.pack("<Q", len(header)) + header + bytes(8)}
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    with s3_server(tmp_path / "s3") as server:
        # A process of its own: fsspec keeps its connections, and others of these tests have other servers.
        own = {"COMFYFARM_STATE_DIR": str(tmp_path / "state"), "COMFYFARM_CACHE_DIR": str(tmp_path / "cache")}
        environment = {**os.environ, **server.environment, **own}
        mirror = f"s3://{server.bucket}/models"

        def call(*words: object) -> subprocess.CompletedProcess[str]:
            command = [*COMMAND, *map(str, words)]
            return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

        added = call("mirror", "add", *(tmp_path / name for name in files), "--mirror", mirror)
        made = call("lock", upscale, "--catalog", mirror, "-o", tmp_path / "l")
        verified = call("lock", "verify", tmp_path / "l")
        against = call("lock", "verify", tmp_path / "l", "--against", mirror)
        elsewhere = call("lock", "verify", tmp_path / "l", "--against", f"s3://{server.bucket}/none")

    assert (added.returncode, made.returncode) == (0, 0), added.stderr + made.stderr
    models = {model["path"]: model for model in json.loads((tmp_path / "l").read_text())["models"]}
    for path, name in {"sub/a.pth": "a.pth", "b.safetensors": "b.safetensors"}.items():
        sha = hashlib.sha256(files[name]).hexdigest()
        assert models[path]["sha256"] == sha
        assert models[path]["sources"] == [f"{mirror}/sha256/{sha[:2]}/{sha}"]
    assert models["b.safetensors"]["header"]["dtypes"] == {"BF16": {"tensors": 1, "bytes": 8}}
    assert (verified.returncode, against.returncode) == (0, 0), verified.stderr + against.stderr
    assert (elsewhere.returncode, elsewhere.stderr.count("file_missing")) == (1, 2)


def test_what_a_bucket_refuses_is_no_matter_of_time_and_what_is_away_is(
    upscale: Path, tmp_path: Path
) -> None:
    def call(*words: object, **environment: str) -> subprocess.CompletedProcess[str]:
        nobody = {key: text for key, text in os.environ.items() if not key.startswith("AWS_")}
        # No credentials but those that are given: none of the home folder's, and no machine's role.
        own = {
            "HOME": str(tmp_path),
            "AWS_EC2_METADATA_DISABLED": "true",
            "COMFYFARM_STATE_DIR": str(tmp_path),
        }
        return subprocess.run(
            [*COMMAND, *map(str, words)], env=nobody | own | environment, capture_output=True, text=True,
            check=False,
        )  # fmt: skip

    with s3_server(tmp_path / "s3") as server:
        given, bucket = dict(server.environment), server.bucket
        (tmp_path / "c.json").write_text("[]")
        model = {"folder": "vae", "path": "x.pt", "sha256": "a" * 64, "size": 3, "sources": []}
        (tmp_path / "l").write_text(json.dumps({"version": 1, "models": [model]}))
        stranger = given | {"AWS_SECRET_ACCESS_KEY": "wrong"}
        denied = call("lock", "verify", tmp_path / "l", "--against", f"s3://{bucket}/m", **stranger)
        unknown = call("preflight", f"s3://{bucket}/w.json", "--json", **stranger)
    without = call("preflight", f"s3://{bucket}/w.json", "--json")
    unlisted = call("lock", upscale, "--catalog", f"s3://{bucket}/m", "-o", tmp_path / "n")
    away = given | {"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}
    silent = call("lock", upscale, "--catalog", f"s3://{bucket}/m", "-o", tmp_path / "n", **away)

    assert (denied.returncode, "source_denied" in denied.stderr) == (1, True), denied.stderr
    for told in (unknown, without):
        assert told.returncode == 1, told.stderr
        assert "access denied" in json.loads(told.stdout)["findings"][0]["message"]
    assert (unlisted.returncode, "access denied" in unlisted.stderr) == (1, True), unlisted.stderr
    assert (silent.returncode, "cannot be listed" in silent.stderr) == (3, True), silent.stderr
