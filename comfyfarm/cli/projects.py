"""`comfyfarm.toml` of several workflows: each may have its own, and one lock is made of all."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from comfyfarm.cli.pack_options import project_name, read_project
from comfyfarm.errors import UsageError
from comfyfarm.lock.project_file import ProjectFile
from comfyfarm.workflow.packs.policy import Policy
from comfyfarm.workflow.packs.urls import repo_key, repo_url, split_commit


@dataclass(frozen=True, slots=True)
class Projects:
    """What the project files of some workflows say."""

    choices: Mapping[str, str]
    """Address of the repository by class: those of all files."""
    policies: Sequence[Policy]
    """Of each workflow, in their order."""


def load_projects(config: str | None, workflows: Sequence[str]) -> Projects:
    """The file that `--config` names for all, else for each workflow the nearest one above it.

    Raises:
        UsageError: one cannot be read, or two choose differently for a class.
    """
    names = [project_name(config, workflow) for workflow in workflows]
    files = {name: read_project(name) for name in dict.fromkeys(names) if name is not None}
    nothing = ProjectFile()
    policies = [files.get(name, nothing).policy if name is not None else nothing.policy for name in names]
    return Projects(_merged(files.items()), policies)


def _merged(files: Iterable[tuple[str, ProjectFile]]) -> Mapping[str, str]:
    found: dict[str, str] = {}
    said: dict[str, str] = {}
    for name, project in files:
        for class_type, choice in project.packs.items():
            if class_type in found and _key(found[class_type]) != _key(choice):
                raise UsageError(
                    f"{said[class_type]} and {name} choose different packs for {class_type}: "
                    f"{found[class_type]} and {choice}; pass the one that is meant with --config, or make "
                    "two locks"
                )
            found.setdefault(class_type, choice)
            said.setdefault(class_type, name)
    return found


def _key(choice: str) -> tuple[str, str | None]:
    url, commit = split_commit(choice)
    return repo_key(repo_url(url) or url), commit
