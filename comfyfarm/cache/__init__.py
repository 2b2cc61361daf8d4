"""Model files on this host: content-addressed, verified before they can be seen."""
