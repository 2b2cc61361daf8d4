"""What ComfyUI speaks: its wire format, an HTTP client, a message stream."""
