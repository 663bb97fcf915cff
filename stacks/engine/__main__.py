"""``python -m stacks.engine [engine|yaml-language]``: get an engine program and print where it is."""

from __future__ import annotations

import sys

from provisioner.errors import Cancelled, GpuprovError, UsageError
from stacks.engine.find import find_engine, find_yaml_language


def main(arguments: list[str]) -> int:
    """Exit code; progress on standard error, the path on standard output."""
    finders = {"engine": find_engine, "yaml-language": find_yaml_language}
    wanted = arguments[0] if arguments else "engine"
    if wanted not in finders:
        sys.stderr.write(f"error: {wanted!r} is none of {', '.join(finders)}\n")
        return 2
    try:
        found = finders[wanted](_say)
    except GpuprovError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    except OSError as error:
        sys.stderr.write(
            f"error: {error.filename or 'the cache'}: {error.strerror}; check the path and its permissions\n"
        )
        return UsageError.exit_code
    except KeyboardInterrupt:
        sys.stderr.write("error: interrupted; nothing half-made is left, run it again\n")
        return Cancelled.exit_code
    sys.stdout.write(f"{found.path}\n")
    return 0


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
