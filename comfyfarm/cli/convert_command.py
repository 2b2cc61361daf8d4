"""`comfyfarm convert FILE`: the API graph of a workflow of any format, on stdout."""

import json
import sys
from typing import Any

import click

from comfyfarm.cli.edge import ends_with_exit_code, say_findings
from comfyfarm.cli.schema_option import load_schema, schema_options
from comfyfarm.cli.workflow_files import read_file
from comfyfarm.workflow.file_node import Editor
from comfyfarm.workflow.findings import has_errors
from comfyfarm.workflow.reading.reader import Reading, read


@click.command("convert")
@click.argument("file", metavar="FILE")
@schema_options
@click.option(
    "--editor",
    type=click.Choice(["1.45", "1.58"]),
    default="1.58",
    show_default=True,
    help="Which editor to follow where a subgraph and its instance hold different values.",
)
@ends_with_exit_code
def command(file: str, schema: str | None, schema_from: str | None, editor: Editor) -> None:
    """Print the API graph of a workflow, as the editor's "Export (API)" makes it.

    FILE may also be the body of a request or another file that the graph is wrapped in, or a picture,
    video or sound that ComfyUI wrote. A graph in API format passes unchanged.

    Exit status: 1 when something is wrong, where the graph is printed, too, if there is one; 2 when the
    call is; 3 when an address or the server of --schema-from does not answer.
    """
    data = read_file(file)
    reading = read(data, name=file, schema=load_schema(schema, schema_from), editor=editor)
    click.echo(json.dumps(_graph(reading, data), ensure_ascii=False, indent=2))
    say_findings(reading.findings, file=file)
    sys.exit(1 if has_errors(reading.findings) else 0)


def _graph(reading: Reading, data: bytes) -> dict[str, Any]:
    """The graph; of a file that is one, each node as it stands there, what reading mends included."""
    graph = reading.workflow.to_api()
    if not data.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
        return graph
    tree: dict[str, Any] = json.loads(data)
    return {key: tree[key] for key in graph} if graph.keys() <= tree.keys() else graph
