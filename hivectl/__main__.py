"""Lets `python -m hivectl` be the same as `hivectl`."""

from hivectl.main import main

main()
