"""Hosts give each other what they have, before anyone asks the mirror."""
