"""comfyfarm's core: everything a render farm for ComfyUI decides and does, without Prefect.

The stages, in the order in which data goes (checked by import-linter, contract 2):

workflow   read any ComfyUI graph: nodes, references, inputs, overrides
lock       pin what a graph names by content
plan       jobs and batches
comfy      what ComfyUI speaks: HTTP, websocket, processes
cache      model files on this host, by SHA-256
ledger     what is true about batches, jobs, attempts, outputs
pool       which server gets which job
run        one attempt, its outcome, what follows from it
outputs    files of a finished job, to where they belong
control    the embedded PostgreSQL and Prefect server
farm       puts the pieces together;  cli  the command
"""

__version__ = "0.1.0"
