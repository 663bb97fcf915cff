"""Entry point of ``pulumi-resource-gpuprov``: the engine starts it with its address and reads a port from its output."""

from __future__ import annotations

import gc


def main() -> None:
    """Serve until the engine is gone."""
    # The engine waits for this start. Imports make many objects and no garbage: looking for some costs a tenth of the time.
    gc.disable()
    from stacks.provider.server import run

    gc.freeze()
    gc.enable()
    run()


if __name__ == "__main__":
    main()
