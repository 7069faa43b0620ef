"""What hive puts into every agent's container.

Nothing on the host imports this package: the image build copies it, and the
image's entry point `/usr/local/bin/hive-agent` starts it. It uses the standard
library only, because the image carries no other Python package. Everything in
a container is untrusted, this package included: no rule of the hive may depend
on what happens here.
"""
