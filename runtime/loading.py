"""Finds the handler in its bundle, tells failures as the researcher should read them, and lists what was imported."""

from __future__ import annotations

import importlib
import os
import sys

from runtime.faults import describe, printable

#: Most module names told in Ready.
IMPORTS_MAX = 2_000
#: Names listed when a module or an attribute is not there.
NAMES_SHOWN = 12


class LoadError(Exception):
    """The handler could not be loaded; the fields are those of `runtime.messages.StartFailed`."""

    def __init__(self, kind: str, error_type: str, message: str, traceback: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        self.error_type = error_type
        self.message = message
        self.traceback = traceback


def load_handler(handler: str, bundle_dir: str) -> object:
    """The object that "module:attribute" names. Raises LoadError, whatever the module does while it is imported."""
    module_name, _, attribute = handler.partition(":")
    if not module_name or not attribute:
        raise LoadError("handler_not_found", "ValueError", f"handler {handler!r} is not of the form module:attribute")
    try:
        found: object = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module_name}.".startswith(f"{error.name}."):
            message = f"there is no module {module_name!r} in the bundle; it holds {_listing(bundle_dir)}"
            raise LoadError("handler_not_found", "ModuleNotFoundError", message) from error
        raise _load_error("import_error", error, bundle_dir) from error
    except SyntaxError as error:
        raise _load_error("syntax_error", error, bundle_dir) from error
    except SystemExit as error:
        raise _load_error("exited", error, bundle_dir) from error
    except BaseException as error:
        raise _load_error("import_error", error, bundle_dir) from error
    for part in attribute.split("."):
        try:
            found = getattr(found, part)
        except AttributeError as error:
            message = f"module {module_name!r} has no {attribute!r}; it has {_callables(module_name)}"
            raise LoadError("handler_not_found", "AttributeError", message) from error
    return found


def _load_error(kind: str, error: BaseException, bundle_dir: str) -> LoadError:
    fault = describe(error, bundle_dir)
    return LoadError(kind, fault.error_type, fault.message, fault.traceback)


def _shown(names: list[str]) -> str:
    if not names:
        return "nothing of the kind"
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return printable(", ".join(names[:NAMES_SHOWN]) + more)


def _listing(bundle_dir: str) -> str:
    try:
        return _shown(sorted(name for name in os.listdir(bundle_dir) if not name.startswith(".")))  # noqa: PTH208
    except OSError as error:
        return f"nothing that can be read ({error.strerror})"


def _callables(module_name: str) -> str:
    own = vars(sys.modules[module_name])
    return _shown(sorted(name for name, value in own.items() if callable(value) and not name.startswith("_")))


def last_module() -> str:
    """A mark in the order of imports, for `imported_since`."""
    return next(reversed(sys.modules))


def imported_since(mark: str, bundle_dir: str) -> list[str]:
    """Modules imported since the mark that any process of this environment could import, in order of import."""
    names = [name for name in _modules_after(mark) if _is_shared(name, bundle_dir)]
    if len(names) > IMPORTS_MAX:
        # Packages first: importing them brings most of what is below.
        names = sorted(names, key=lambda name: name.count("."))[:IMPORTS_MAX]
    return names


def _modules_after(mark: str) -> list[str]:
    after: list[str] = []
    try:
        # From the end: a walk from the beginning would touch, and so copy, memory shared with the zygote.
        for name in reversed(sys.modules):
            if name == mark:
                break
            after.append(name)
    except RuntimeError:
        pass  # a thread of the handler imports meanwhile; what was seen is good
    after.reverse()
    return after


def _is_shared(name: str, bundle_dir: str) -> bool:
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    # Modules made by hand, and a second name for another module, cannot be imported by name elsewhere.
    if spec is None or getattr(spec, "name", None) != name or not isinstance(getattr(spec, "origin", None), str):
        return False
    if spec.origin in ("built-in", "frozen"):
        return True
    inside = bundle_dir.rstrip(os.sep) + os.sep
    return bool(spec.has_location) and not spec.origin.startswith(inside) and os.path.isabs(spec.origin)  # noqa: PTH117
