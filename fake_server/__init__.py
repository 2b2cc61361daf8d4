"""Runnable fakes over real sockets. They import nothing of comfyfarm."""
