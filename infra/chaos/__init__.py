"""`make chaos`: a batch on several workers and servers, while something breaks every second."""
