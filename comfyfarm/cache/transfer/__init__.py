"""The engine: the bytes of one file from one source, in ranges, into a file that is verified as it fills."""
