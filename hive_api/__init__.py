"""The wire contract between the daemon, its operator's CLI and its agents."""
