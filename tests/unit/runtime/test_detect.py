"""Which shape a handler has, and what the researcher is told when that is not clear."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from runtime.shapes.detect import BadShape, is_async, shape_of, takes_context


def event_two(event: Any, context: Any) -> Any: ...
def event_one(event: Any) -> Any: ...
def event_default(event: Any, context: Any = None, extra: Any = None) -> Any: ...
def event_keyword(event: Any, *, loud: bool = False) -> Any: ...
async def event_async(event: Any, context: Any) -> Any: ...
async def asgi(scope: Any, receive: Any, send: Any) -> None: ...
def three(a: Any, b: Any, c: Any) -> Any: ...
def nothing() -> Any: ...
def anything(*args: Any) -> Any: ...


def decorated(function: Any) -> Any:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


class Application:
    async def __call__(self, scope: Any, receive: Any, send: Any) -> None: ...


class OddlyNamed:
    async def __call__(self, s: Any, r: Any, w: Any) -> None: ...


class Callable:
    def __call__(self, event: Any, context: Any) -> Any: ...

    def method(self, event: Any) -> Any: ...


@pytest.mark.parametrize(
    "handler",
    [event_two, event_one, event_default, event_keyword, event_async, decorated(event_two), Callable(),
     Callable().method, functools.partial(three, 1)],
)  # fmt: skip
def test_event_handlers_are_recognised(handler: Any) -> None:
    assert shape_of(handler, "auto") == "event"


@pytest.mark.parametrize("handler", [asgi, Application(), OddlyNamed(), decorated(asgi)])
def test_asgi_applications_are_recognised(handler: Any) -> None:
    assert shape_of(handler, "auto") == "asgi"


@pytest.mark.parametrize("handler", [three, nothing, anything, min])
def test_what_is_not_clear_says_what_to_write(handler: Any) -> None:
    with pytest.raises(BadShape, match=r'shape = "event".*shape = "asgi".*function\.toml'):
        shape_of(handler, "auto")


@pytest.mark.parametrize(("handler", "part"), [(5, "int and cannot be called"), (Application, "is a class")])
def test_what_cannot_be_called_is_refused(handler: Any, part: str) -> None:
    with pytest.raises(BadShape, match=part):
        shape_of(handler, "auto")


def test_a_declared_shape_is_believed() -> None:
    assert shape_of(anything, "asgi") == "asgi"
    assert shape_of(anything, "event") == "event"
    with pytest.raises(BadShape, match="wsgi"):
        shape_of(anything, "wsgi")
    with pytest.raises(BadShape, match="cannot be called"):
        shape_of(None, "event")


def test_coroutine_functions_are_seen_through_wrappers() -> None:
    assert is_async(event_async)
    assert is_async(functools.partial(event_async, 1))
    assert is_async(Application())
    assert not is_async(event_two)
    assert not is_async(Callable())


def test_the_context_is_given_to_all_who_may_take_it() -> None:
    assert takes_context(event_two)
    assert takes_context(anything)
    assert takes_context(event_default)
    assert not takes_context(event_one)
    assert not takes_context(event_keyword)
