"""Against other software of the field, in an environment of its own; not part of the default run.

    python3.11 -m venv DIR
    DIR/bin/pip install -c tests/compat/nova34-constraints.txt 'nova==34.*' hypothesis msgspec pytest
    DIR/bin/python -m pytest --override-ini=filterwarnings= tests/compat
"""
