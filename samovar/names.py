"""NAME on the command line: `function` or `namespace/function`."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import quote

from samovar.problems import WrongUsage

DEFAULT_NAMESPACE = "default"
#: The rule for names that `samovar init` gives; what may exist already is for the gateway to say.
_GOOD_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")


class FunctionName(NamedTuple):
    """A function within its namespace."""

    namespace: str
    function: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.function}"

    @property
    def path(self) -> str:
        """Both names as two segments of a URL's path."""
        return f"{quote(self.namespace, safe='')}/{quote(self.function, safe='')}"

    @property
    def short(self) -> str:
        """As a person would type it."""
        return self.function if self.namespace == DEFAULT_NAMESPACE else str(self)


def parse_name(text: str) -> FunctionName:
    """NAME as typed. Raises WrongUsage."""
    namespace, slash, function = text.rpartition("/")
    if not slash:
        namespace = DEFAULT_NAMESPACE
    if not function or not namespace or "/" in namespace:
        raise WrongUsage(f"{text!r} is not a function's name", hint="write `function` or `namespace/function`")
    return FunctionName(namespace, function)


def check_new_name(what: str, name: str) -> None:
    """Names that every place (URLs, folders, metrics) takes. Raises WrongUsage."""
    if not _GOOD_NAME.fullmatch(name):
        raise WrongUsage(
            f"{name!r} cannot be a {what}",
            hint="use lower-case letters, digits and inner '-', 63 characters at most",
        )
