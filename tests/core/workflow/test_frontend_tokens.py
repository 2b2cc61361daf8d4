import pytest

from comfyfarm.workflow.frontend_tokens import find_token


@pytest.mark.parametrize(
    ("name", "text", "token"),
    [
        ("filename_prefix", "a/%date:yyyy-MM%_x", "%date:yyyy-MM%"),
        ("filename_prefix", "%Empty Latent.width%", "%Empty Latent.width%"),
        ("text", "on %date:yyyy%", "%date:yyyy%"),
        ("text", "50% of it. 60% of that", None),
        ("filename_prefix", "%year%", None),
        ("filename_prefix", "50% off", None),
    ],
)
def test_tokens_that_the_editor_fills_in(name: str, text: str, token: str | None) -> None:
    assert find_token(name, text) == token
