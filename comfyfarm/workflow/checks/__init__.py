"""What ComfyUI would say of a graph: its links, its values, its classes, against a node schema."""
