"""First code in an environment's interpreter: loads the runtime without leaving a trace of it for handlers.

Run as a script: `python -I bootstrap.py zygote|worker DESCRIPTOR PARENT RUNTIME_DIR MSGPACK_DIR`. The two packages are
imported from the named directories without ever being put on `sys.path`, and are taken out of `sys.modules` again
before any other code of the environment or of a handler runs; so a module of the same name there is the one found.
"""

from __future__ import annotations

import gc
import sys

#: What a bare interpreter has loaded; a handler's own module of such a name could not win in plain Python either.
BARE_MODULES = frozenset(sys.modules)

HIDDEN = ("runtime", "msgpack")


def adopt(name: str, directory: str) -> None:
    """Import package `name` from `directory`, whatever `sys.path` says."""
    import importlib.util

    place = directory + "/" + name
    spec = importlib.util.spec_from_file_location(name, place + "/__init__.py", submodule_search_locations=[place])
    if spec is None or spec.loader is None:
        raise ImportError("no package " + name + " in " + directory)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)


def hide() -> None:
    """Take the runtime's packages out of `sys.modules`; its own modules keep their references to each other."""
    for name in list(sys.modules):
        if name.partition(".")[0] in HIDDEN:
            del sys.modules[name]


def main(role: str, descriptor: str, parent: str, runtime_dir: str, msgpack_dir: str) -> None:
    """Load the runtime, hide it, and become a zygote or a spawned worker."""
    gc.disable()
    adopt("msgpack", msgpack_dir)
    adopt("runtime", runtime_dir)
    import importlib

    entry = importlib.import_module("runtime." + role)
    hide()
    entry.main(int(descriptor), int(parent), BARE_MODULES)


if __name__ == "__main__":
    main(*sys.argv[1:])
