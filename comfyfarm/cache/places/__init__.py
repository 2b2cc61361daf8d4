"""Where files lie under names: a folder, a bucket, a web server; and how they are written there."""
