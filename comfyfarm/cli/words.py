"""Small words that several commands print."""


def counted(number: int, noun: str) -> str:
    """`1 model`, `2 models`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
