import pytest

from comfyfarm.workflow.editor_nodes import (
    Virtual,
    editor_pack,
    group_name,
    is_editors_own,
    is_never_run,
    is_template,
    makes_links,
    virtual_of,
)


@pytest.mark.parametrize(
    ("class_type", "does", "is_own"),
    [
        ("Note", Virtual.NOTE, True),
        ("Reroute", Virtual.PASS, True),
        ("SetNode", Virtual.SET, False),
        ("Label (rgthree)", Virtual.NOTE, False),
        ("KSampler", None, False),
    ],
)
def test_what_a_node_does_in_the_editor(class_type: str, does: Virtual | None, *, is_own: bool) -> None:
    assert virtual_of(class_type) is does
    assert is_editors_own(class_type) is is_own
    assert is_never_run(class_type) is (does is not None)
    assert (editor_pack(class_type) is not None) is (does is not None and not is_own)


def test_nodes_that_feed_others_everywhere_have_a_python_side() -> None:
    """So a server may run them when an API file holds them, and a policy has to look at them."""
    assert virtual_of("Anything Everywhere") is Virtual.EVERYWHERE
    assert not is_never_run("Anything Everywhere")


def test_links_that_only_the_editor_makes() -> None:
    assert makes_links("Anything Everywhere?")
    assert makes_links("Seed Everywhere")
    assert not makes_links("Reroute")


@pytest.mark.parametrize(
    ("class_type", "name", "is_one"),
    [
        ("workflow>My group", "My group", True),
        ("workflow/My group", "My group", True),
        ("0A1b2c3d-0000-4000-8000-00000000000f", None, True),
        ("0a1b2c3d-0000-4000-8000-00000000000f2", None, False),
        ("KSampler", None, False),
    ],
)
def test_classes_that_stand_for_a_graph(class_type: str, name: str | None, *, is_one: bool) -> None:
    assert group_name(class_type) == name
    assert is_template(class_type) is is_one
