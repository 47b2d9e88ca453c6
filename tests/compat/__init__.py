"""Against other software of the field. Not part of the default run, since it installs that software: tox -e compat."""
