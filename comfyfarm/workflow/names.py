r"""Names of files with folders before them. Windows writes `\` where everybody else writes `/`."""


def slashed(name: str) -> str:
    """The name with `/` between its folders."""
    return name.replace("\\", "/")


def base_name(name: str) -> str:
    """The name without its folders, however they are written."""
    return slashed(name).rpartition("/")[2]
