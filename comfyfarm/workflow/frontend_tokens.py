"""Tokens in texts that the editor fills in when it queues: `%date:yyyy-MM-dd%`, `%KSampler.seed%`.

Source: `applyTextReplacements` in ComfyUI_frontend's src/utils/searchAndReplace.ts.
"""

import re

_TOKEN = re.compile(r"%(?:date:[^%\n]{1,60}|date|[^%\n./\\]{1,60}\.[^%\n./\\]{1,60})%")
_FILE_NAME = re.compile("prefix|filename|path")


def find_token(name: str, text: str) -> str | None:
    """The first token in the text of an input; None where there is none.

    Only a date is one for certain in any input: elsewhere `%a.b%` may be prose.
    """
    found = _TOKEN.search(text)
    if found is None:
        return None
    return found[0] if "date:" in found[0] or _FILE_NAME.search(name) else None
