"""`python3 -m hive_agent COMMAND…`: the same as the image's launcher.

It exists so that the harness can be run from a checkout, by its tests and by
authors of agents, without building an image.
"""

import sys

from hive_agent.harness import main

sys.exit(main(sys.argv[1:]))
