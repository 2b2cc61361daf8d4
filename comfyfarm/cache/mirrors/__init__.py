"""The mirror: model files under their SHA-256 in a bucket or folder, with what is known of them beside."""
