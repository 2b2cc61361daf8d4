"""Stage 1: a ComfyUI graph as a value. Takes bytes; opening names is the edge's work."""
