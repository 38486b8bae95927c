"""Parsers from what others write (API objects, tool output) to the words of the core. Pure."""
