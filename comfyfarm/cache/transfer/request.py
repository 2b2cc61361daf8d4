"""How one file is asked for over HTTP; the places, one layer below, say it."""

from comfyfarm.cache.places.request import Addressed, Request

__all__ = ["Addressed", "Request"]
