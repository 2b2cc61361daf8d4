"""Options of `comfyfarm lock` that would not count, values that are none, files that are broken."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

Command = Callable[..., Result]


@pytest.fixture
def words(picture: Path, tmp_path: Path) -> list[object]:
    """A call that makes a lock."""
    (tmp_path / "c.json").write_text("[]")
    return ["lock", picture, "--catalog", tmp_path / "c.json", "-o", tmp_path / "l"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--wheelhouse", "."], "--wheelhouse: only the Python environment needs it"),
        (["--python-version", "3.12", "--platform", "linux"], "--python-version, --platform: only"),
        (["--custom-nodes", ".", "--wheelhouse", "."], "--comfyui DIR"),
        (["--comfyui", ".", "--python-version", "latest"], "'latest' is no version of Python"),
        (["--comfyui", ".", "--platform", "windoze"], "'windoze' is none that uv knows"),
        (["--comfyui", ".", "--wheelhouse", "nowhere"], "nowhere: is no folder of wheels"),
        (["--comfyui-version", ""], "--comfyui-version is empty"),
        (["--comfyui", ""], "--comfyui is empty"),
        (["--registry", "nourl"], "--registry 'nourl' is no address"),
        (["--schema-from", "notaurl"], "--schema-from 'notaurl' is no address"),
        (["--config", "nowhere.toml"], "nowhere.toml: there is no such file"),
        (["--catalog", "foo://x/y"], "foo:// is not known; use a path, https:// or s3://"),
    ],
)
def test_what_would_not_count_is_wrong_usage(
    command: Command, words: list[object], tmp_path: Path, options: list[str], said: str
) -> None:
    told = command(*words, *options)

    assert (told.exit_code, said in told.stderr) == (2, True), told.stderr
    assert not (tmp_path / "l").exists()


@pytest.mark.parametrize("option", ["--schema", "--node-map", "--host-packs", "--catalog", "--import"])
@pytest.mark.parametrize("content", [None, "{", "[1]"])
def test_a_file_of_data_that_is_not_there_or_broken_is_the_datas_fault(
    command: Command, words: list[object], tmp_path: Path, option: str, content: str | None
) -> None:
    file = tmp_path / "data.json"
    if content is not None:
        file.write_text(content)
    told = command(*words, option, file, "--json")

    assert told.exit_code == 1
    assert "data.json" in json.loads(told.stdout)["findings"][0]["message"] + told.stderr
    assert "export" not in told.stderr


def test_a_misspelt_subcommand_is_told_and_a_file_of_that_name_is_a_file(
    command: Command, words: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = command("lock", "verifi")
    assert (told.exit_code, "is 'verify' meant?" in told.stderr) == (2, True)

    monkeypatch.chdir(tmp_path)
    (tmp_path / "verifi").write_bytes(Path(str(words[1])).read_bytes())
    assert command("lock", "verifi", *words[2:]).exit_code == 0


def test_a_platform_that_has_the_form_of_one_is_refused_by_uv_as_wrong_usage(
    command: Command, words: list[object], tmp_path: Path
) -> None:
    (tmp_path / "ComfyUI").mkdir()
    (tmp_path / "ComfyUI" / "requirements.txt").write_text("maths\n")
    (tmp_path / "ComfyUI" / "comfyui_version.py").write_text('__version__ = "1"\n')
    (tmp_path / "wheels").mkdir()
    options = ["--comfyui", tmp_path / "ComfyUI", "--wheelhouse", tmp_path / "wheels"]
    told = command(*words, *options, "--platform", "z80-unknown-linux-gnu")

    assert (told.exit_code, "z80-unknown-linux-gnu" in told.stderr) == (2, True), told.stderr


def test_a_number_where_a_hash_belongs_wants_quotes(
    command: Command, words: list[object], tmp_path: Path
) -> None:
    (tmp_path / "c.yaml").write_text(f"- {{folder: vae, path: a.pt, sha256: {'4' * 64}, size: 1}}\n")
    told = command(*words, "--catalog", tmp_path / "c.yaml")

    assert (told.exit_code, "0.sha256" in told.stderr, "put it in quotes" in told.stderr) == (1, True, True)


@pytest.mark.parametrize("subcommand", ["verify", "diff", "update"])
def test_a_lock_that_is_none_is_said_as_json_too(command: Command, picture: Path, subcommand: str) -> None:
    words: dict[str, list[object]] = {
        "verify": [], "diff": [picture], "update": ["--catalog", picture],
    }  # fmt: skip
    more = words[subcommand]
    told = command("lock", subcommand, picture, *more, "--json")
    (found,) = json.loads(told.stdout)["findings"]

    assert told.exit_code == 1
    assert "is no lock (it looks like a workflow); the first argument is the lock" in found["message"]


def test_names_that_an_update_lacks_are_json_too(
    command: Command, words: list[object], tmp_path: Path
) -> None:
    assert command(*words).exit_code == 0
    told = command("lock", "update", tmp_path / "l", "zzz", "--catalog", tmp_path / "c.json", "--json")
    raw = json.loads(told.stdout)

    assert (told.exit_code, raw["changes"], len(raw["findings"])) == (1, [], 1)
    assert raw["findings"][0]["message"] == "zzz"


def test_a_file_address_is_a_catalogue_like_its_path(
    command: Command, upscale: Path, words: list[object], tmp_path: Path
) -> None:
    for path in ("sub/a.pth", "b.safetensors"):
        file = tmp_path / "library" / "upscale_models" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(path.encode())
    told = command("lock", upscale, "--catalog", f"file://{tmp_path}/library", "-o", tmp_path / "l")

    assert (told.exit_code, told.stderr.splitlines()[-1]) == (0, f"{tmp_path}/l: 2 models pinned"), (
        told.stderr
    )
    assert command(*words[:2], "--catalog", f"file://{tmp_path}/c.json", "-o", tmp_path / "m").exit_code == 0


def test_changes_of_a_header_are_told_in_words(command: Command, tmp_path: Path) -> None:
    header = {
        "kind": "safetensors",
        "bytes": 400,
        "tensors": 1,
        "dtypes": {"F32": {"bytes": 400, "tensors": 1}},
    }
    model = {"folder": "vae", "path": "a", "sha256": "a" * 64, "size": 1, "sources": ["/one"]}
    for name, more in {"old": {}, "new": {"header": header, "sources": ["/one", "/two"]}}.items():
        (tmp_path / name).write_text(json.dumps({"version": 1, "models": [model | more]}))
    told = command("lock", "diff", tmp_path / "old", tmp_path / "new").stdout

    assert "~ models vae/a header: nothing → safetensors, 1 tensor, F32 400 bytes" in told
    assert "~ models vae/a sources: /one → /one, /two" in told
