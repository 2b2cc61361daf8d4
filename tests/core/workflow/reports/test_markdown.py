"""The report in the dashboard: tables that no name in a file can break."""

import json
from typing import Any

from comfyfarm.workflow.preflight import preflight
from comfyfarm.workflow.reports.markdown import to_markdown
from comfyfarm.workflow.schema import NodeSchema


def test_findings_and_models_stand_in_tables(schema: NodeSchema, good: dict[str, Any]) -> None:
    good["4"] = {"class_type": "VAELoader", "inputs": {"vae_name": "sub\\v_1.pt"}}
    text = to_markdown([preflight(json.dumps(good).encode(), name="w.json", schema=schema)])

    assert text.startswith("# w.json\napi format, ")
    assert "| vae | sub/v\\_1.pt | file | True | 4 | VAELoader |" in text
    assert "| warning | pickle | 4 | vae\\_name |" in text
    assert text.index("| error |" if "| error |" in text else "| warning |") < text.index("## Models")


def test_names_of_a_file_are_no_markdown(schema: NodeSchema) -> None:
    graph = {"1": {"class_type": "x|y\n# <img src=a>", "inputs": {}}}
    text = to_markdown([preflight(json.dumps(graph).encode(), name="a|b.json", schema=schema)])

    assert "# a\\|b.json" in text
    assert "<img" not in text.replace("\\<img", "")
    for line in text.splitlines():
        assert not line.startswith("# \\<img")


def test_a_long_table_is_cut_and_says_so(schema: NodeSchema) -> None:
    graph = {str(n): {"class_type": "VAELoader", "inputs": {"vae_name": f"{n}.pt"}} for n in range(300)}
    text = to_markdown([preflight(json.dumps(graph).encode(), name="w.json", schema=schema)])

    assert "… and 100 more" in text
