"""Pictures, films, sounds and models that carry a workflow: parsers from bytes to texts, without pixels.

Small ones of our own instead of Pillow or PyAV: those are heavy to import, decode what is not asked for,
and are lax where a file is damaged.
"""

SUFFIXES = frozenset(
    [
        ".png",
        ".apng",
        ".webp",
        ".jpg",
        ".jpeg",
        ".svg",
        ".exr",
        ".mp4",
        ".m4v",
        ".m4a",
        ".mov",
        ".webm",
        ".mkv",
        ".mka",
        ".flac",
        ".ogg",
        ".oga",
        ".opus",
        ".mp3",
        ".glb",
        ".latent",
    ]
)
"""Suffixes of files that may carry a workflow, for looking through folders. Reading goes by content alone."""
