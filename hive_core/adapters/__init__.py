"""One module for each thing outside the daemon."""
