"""Which shape a handler has, from its declaration or, where that leaves no doubt, from its signature."""

from __future__ import annotations

import functools
import inspect
from typing import Any

SHAPES = ("event", "asgi")
_ASGI_NAMES = ("scope", "receive", "send")


class BadShape(TypeError):
    """The handler cannot be called as declared, or its signature fits no shape without doubt."""


def shape_of(handler: object, declared: str) -> str:
    """ "event" or "asgi". Raises BadShape with what to write in function.toml."""
    if not callable(handler):
        raise BadShape(f"the handler is of type {type(handler).__name__} and cannot be called")
    if declared in SHAPES:
        return declared
    if declared != "auto":
        raise BadShape(f"shape {declared!r} is none of auto, {', '.join(SHAPES)}")
    if inspect.isclass(handler):
        raise BadShape(f"the handler {handler.__name__} is a class; name a function or an instance")
    positional, required, variadic = _positional(handler)
    if not variadic:
        if tuple(positional) == _ASGI_NAMES or (len(positional) == 3 and _is_async_instance(handler)):
            return "asgi"
        if positional and required <= 2:
            return "event"
    raise BadShape(
        f"the handler's parameters ({_listed(positional, variadic)}) fit no shape without doubt; "
        'write shape = "event" (called with event, context) or shape = "asgi" (scope, receive, send) in function.toml'
    )


def _positional(handler: Any) -> tuple[list[str], int, bool]:
    """Names of the parameters that can be given by position, how many must be, and whether any number can be."""
    try:
        parameters = inspect.signature(handler).parameters.values()
    except (ValueError, TypeError) as error:
        raise BadShape(
            'the handler has no signature that can be read; write shape = "event" or shape = "asgi" in function.toml'
        ) from error
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    named = [p for p in parameters if p.kind in kinds]
    required = sum(p.default is inspect.Parameter.empty for p in named)
    return [p.name for p in named], required, any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters)


def _is_async_instance(handler: Any) -> bool:
    """An object, not a function, whose call is a coroutine: how applications of frameworks look."""
    return not inspect.isroutine(handler) and inspect.iscoroutinefunction(type(handler).__call__)


def _listed(positional: list[str], variadic: bool) -> str:
    return ", ".join(positional + ["*args"] * variadic)


def is_async(handler: Any) -> bool:
    """Calling it gives a coroutine."""
    inner = inspect.unwrap(handler)
    while isinstance(inner, functools.partial):
        inner = inspect.unwrap(inner.func)
    return inspect.iscoroutinefunction(inner) or _is_async_instance(inner)


def takes_context(handler: Any) -> bool:
    """An event handler takes the context beside the event; only one that surely does not is called without."""
    try:
        positional, _, variadic = _positional(handler)
    except BadShape:
        return True
    return variadic or len(positional) >= 2
