"""Decode a request, ask the engine, encode the answer."""
