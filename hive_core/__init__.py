"""The host daemon: observes agents, plans and applies."""

__version__ = "0.1.0"
