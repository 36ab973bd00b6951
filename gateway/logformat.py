"""The gateway's own log on stderr: for people on a terminal, one JSON object a line otherwise."""

from __future__ import annotations

import logging
import sys
import time

import orjson

_COLOURS = {logging.WARNING: "\x1b[33m", logging.ERROR: "\x1b[31m", logging.CRITICAL: "\x1b[31m"}

#: Longest message kept in a line; tracebacks have their own field.
MESSAGE_CHARS_MAX = 8_192


class JsonFormatter(logging.Formatter):
    """`{"at", "level", "logger", "message", "invocation"?, "error"?}`."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        fields: dict[str, object] = {
            "at": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage()[:MESSAGE_CHARS_MAX],
        }
        invocation = getattr(record, "invocation", None)
        if invocation:
            fields["invocation"] = invocation
        if record.exc_info:
            fields["error"] = self.formatException(record.exc_info)
        return orjson.dumps(fields, default=str).decode()


class TerminalFormatter(logging.Formatter):
    """Time, level where it matters, message."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, with the traceback below it if there is one."""
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        message = record.getMessage()[:MESSAGE_CHARS_MAX]
        colour = _COLOURS.get(record.levelno, "")
        level = f"{colour}{record.levelname.lower()}\x1b[0m " if colour else ""
        invocation = getattr(record, "invocation", None)
        text = f"{clock} {level}{message}" + (f" [{invocation}]" if invocation else "")
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        return text


def set_up_logging(level: str = "INFO") -> None:
    """Send every logger of this process to stderr in the fitting format."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(TerminalFormatter() if sys.stderr.isatty() else JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    logging.getLogger("asyncio").setLevel(logging.WARNING)
