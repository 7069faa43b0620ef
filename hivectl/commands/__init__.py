"""The commands: one file each, or one for a few that differ in a word."""
