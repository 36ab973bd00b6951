"""Serves a synchronous event handler, one call after the other, on the main thread: the shortest way there is.

Receive, decode, run, one sendall. No event loop, no thread, no task. While a call runs nothing is read, so a
Cancel is seen only after it; the gateway ends a worker that does not yield.
"""

from __future__ import annotations

import signal
import socket
from collections import deque
from time import perf_counter_ns, process_time_ns

from runtime.answers import CREDIT_BATCH_BYTES, BodyTooLarge, CallCancelled, failure, stats_since
from runtime.codec import Decoder, FrameError, encode
from runtime.messages import CHUNK_BYTES, WINDOW_BYTES, Body, Cancel, Credit, Message, Request, Response
from runtime.shapes.event import EventHandler
from runtime.shapes.event_result import Answer

#: A small read costs less for the usual small call; once one was full, more is coming.
_READ_BYTES = 16 * 1024
_READ_MORE_BYTES = 256 * 1024


class ConnectionEnded(Exception):
    """The gateway is gone, or the worker was told to stop; nothing more can be read or said."""


class SerialDriver:
    """See the module."""

    def __init__(self, connection: socket.socket, handler: EventHandler, max_body_bytes: int, bundle_dir: str) -> None:
        self._connection = connection
        self._run = handler.run
        self._max_body_bytes = max_body_bytes
        self._bundle_dir = bundle_dir
        self._decoder = Decoder()
        self._inbox: deque[Message] = deque()
        self._read_bytes = _READ_BYTES
        self._idle = False
        self._stopping = False

    def stop_on_sigterm(self) -> None:
        """Have SIGTERM end an idle worker at once and a busy one after its call."""
        signal.signal(signal.SIGTERM, self._on_sigterm)

    def _on_sigterm(self, _signum: int, _frame: object) -> None:
        self._stopping = True
        if self._idle:
            # Ends the blocked recv, but only after what has arrived already: no accepted call is lost.
            self._connection.shutdown(socket.SHUT_RD)

    def serve(self) -> None:
        """Serve until told to stop or the gateway is gone."""
        inbox = self._inbox
        try:
            while True:
                self._idle = True
                if self._stopping and not inbox:
                    return
                self._receive()
                self._idle = False
                while inbox:
                    message = inbox.popleft()
                    if type(message) is Request:
                        self._call(message)
        except (ConnectionEnded, FrameError, OSError):
            return

    def _receive(self) -> None:
        inbox = self._inbox
        while not inbox:
            size = self._read_bytes
            data = self._connection.recv(size)
            if not data:
                raise ConnectionEnded
            self._read_bytes = _READ_MORE_BYTES if len(data) == size else _READ_BYTES
            inbox.extend(self._decoder.feed(data))

    def _next(self) -> Message:
        if not self._inbox:
            self._receive()
        return self._inbox.popleft()

    def _call(self, request: Request) -> None:
        began, cpu_began = perf_counter_ns(), process_time_ns()
        number = request.call
        try:
            body = request.body if request.last else self._collect(request)
            answer = self._run(request, body)
        except (ConnectionEnded, FrameError):
            raise
        except BaseException as error:  # SystemExit and KeyboardInterrupt end the call, not the worker
            ending: Message = failure(number, error, self._bundle_dir, stats_since(began, cpu_began))
        else:
            if len(answer.body) > CHUNK_BYTES:
                ending = self._stream(number, answer, began, cpu_began)
            else:
                ending = Response(number, *answer, True, stats_since(began, cpu_began))
        try:
            frame = encode(ending)
        except FrameError as error:
            frame = encode(failure(number, error, self._bundle_dir, stats_since(began, cpu_began)))
        self._connection.sendall(frame)

    def _collect(self, request: Request) -> bytes:
        """The whole body of a request that came in pieces."""
        pieces = [request.body]
        size, due = len(request.body), len(request.body)
        while True:
            if due >= CREDIT_BATCH_BYTES:
                self._connection.sendall(encode(Credit(request.call, due)))
                due = 0
            message = self._next()
            if type(message) is Body and message.call == request.call:
                pieces.append(message.data)
                size += len(message.data)
                due += len(message.data)
                if size > self._max_body_bytes:
                    raise BodyTooLarge(f"the body has more than {self._max_body_bytes} bytes")
                if message.last:
                    return b"".join(pieces)
            elif type(message) is Cancel and message.call == request.call:
                raise CallCancelled("the call was cancelled before its body was complete")

    def _stream(self, number: int, answer: Answer, began: int, cpu_began: int) -> Message:
        """Send all but the last piece of a large answer, within the gateway's window; gives the last message."""
        body = memoryview(answer.body)
        head = Response(number, answer.status, answer.headers, bytes(body[:CHUNK_BYTES]), False, [])
        try:
            frame = encode(head)
        except FrameError as error:
            return failure(number, error, self._bundle_dir, stats_since(began, cpu_began))
        self._connection.sendall(frame)
        sent, window = CHUNK_BYTES, WINDOW_BYTES - CHUNK_BYTES
        while True:
            piece = min(CHUNK_BYTES, len(body) - sent)
            while window < piece:
                message = self._next()
                if type(message) is Credit and message.call == number:
                    window += message.amount
                elif type(message) is Cancel and message.call == number:
                    gone = CallCancelled("the caller did not wait for the rest of the answer")
                    return failure(number, gone, self._bundle_dir, stats_since(began, cpu_began))
            data = bytes(body[sent : sent + piece])
            sent += piece
            if sent == len(body):
                return Body(number, data, True, stats_since(began, cpu_began))
            self._connection.sendall(encode(Body(number, data, False, [])))
            window -= piece
