"""The life of a worker: takes its place as a process, loads the handler, serves calls, leaves.

A worker is forked from a zygote (`run_forked`), or started in a fresh interpreter (`main`) when the
environment may not be forked. From the handler's first line on, nothing of the runtime is in its way.
"""

from __future__ import annotations

import atexit
import faulthandler
import gc
import json
import os
import socket
import sys
from collections.abc import Callable
from time import perf_counter_ns
from typing import NoReturn

from runtime import control, process_setup
from runtime.codec import encode
from runtime.event_service import EventService
from runtime.faults import describe
from runtime.linux import name_process
from runtime.loading import LoadError, imported_since, last_module, load_handler
from runtime.loop_driver import LoopDriver, Service
from runtime.loop_driver import run as run_loop
from runtime.messages import PROTOCOL_VERSION, Hello, Message, Ready, StartFailed
from runtime.serial_driver import SerialDriver
from runtime.shapes.asgi import AsgiService
from runtime.shapes.detect import BadShape, shape_of
from runtime.shapes.event import EventHandler
from runtime.spec import WorkerSpec

#: Exit status of a worker whose handler could not be loaded, and of one that the runtime itself failed.
EXIT_START_FAILED = 1
EXIT_RUNTIME_FAILED = 70


def run_forked(orders: socket.socket, parent: int, bare_modules: frozenset[str]) -> None:
    """The forked child's whole life; never returns. What it is to be comes over `orders`, perhaps much later."""
    code, process_id = EXIT_RUNTIME_FAILED, os.getpid()
    try:
        process_setup.leave_the_zygote(parent)
        received = control.receive(orders)
        if received is None:
            os._exit(0)
        orders.close()
        order, descriptors = received
        spec = WorkerSpec.from_dict(order["spec"])
        connection = process_setup.take_descriptors(descriptors)
        name_process(spec.function)
        variables = process_setup.environment_variables(spec, os.environ)
        if order["spawn"]:
            _become_a_fresh_interpreter(order["spawn"], spec, connection, variables)
        process_setup.replace_environment(variables)
        process_setup.fresh_streams()
        code = _live(spec, socket.socket(fileno=connection), bare_modules)
    except BaseException as error:
        _tell_of_our_own_failure(error)
    finally:
        _leave(code, process_id)


def _become_a_fresh_interpreter(
    command: list[str], spec: WorkerSpec, connection: int, variables: dict[str, str]
) -> NoReturn:
    """Run `main` there. `command` starts the interpreter; SPEC_PLACE in it is filled in here."""
    told = os.memfd_create("spec", 0)
    os.write(told, json.dumps({"spec": spec.as_dict(), "connection": connection}).encode("ascii"))
    os.lseek(told, 0, os.SEEK_SET)
    os.set_inheritable(connection, True)
    arguments = [str(told) if argument == control.SPEC_PLACE else argument for argument in command]
    os.execve(command[0], arguments, variables)


def main(descriptor: int, _parent: int, bare_modules: frozenset[str]) -> None:
    """A spawned worker's whole life; never returns. `descriptor` holds its spec."""
    code, process_id = EXIT_RUNTIME_FAILED, os.getpid()
    try:
        with open(descriptor, "rb") as told:
            order = json.load(told)
        os.set_inheritable(order["connection"], False)
        process_setup.fresh_streams()
        spec = WorkerSpec.from_dict(order["spec"])
        name_process(spec.function)
        code = _live(spec, socket.socket(fileno=order["connection"]), bare_modules)
    except BaseException as error:
        _tell_of_our_own_failure(error)
    finally:
        _leave(code, process_id)


def _tell_of_our_own_failure(error: BaseException) -> None:
    try:
        os.write(2, f"samovar: the worker failed: {type(error).__name__}: {error}\n".encode(errors="replace"))
    except OSError:
        pass


def _leave(code: int, process_id: int) -> None:
    """End the process now: exit functions and buffers, but no wait for threads and no dismantling of modules.

    A child that the handler forked and that came back here just ends: it must not do the worker's last acts.
    """
    if os.getpid() != process_id:
        os._exit(0)
    for last_act in (atexit._run_exitfuncs, sys.stdout.flush, sys.stderr.flush):
        try:
            last_act()
        except BaseException as error:
            _tell_of_our_own_failure(error)
    os._exit(code)


def _live(spec: WorkerSpec, connection: socket.socket, bare_modules: frozenset[str]) -> int:
    """Introduce, load, serve. Gives the exit status."""
    connection.setblocking(True)
    if connection.family != socket.AF_UNIX:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    process_setup.close_in_children(connection)
    process_setup.forget_the_bootstrap()
    process_setup.let_bundle_win(spec.bundle_dir, bare_modules)
    faulthandler.enable()
    gc.enable()

    def say(message: Message) -> None:
        connection.sendall(encode(message))

    say(Hello("worker", spec.worker, spec.token, PROTOCOL_VERSION, os.getpid()))
    began, mark = perf_counter_ns(), last_module()

    def ready(shape: str) -> None:
        imports = imported_since(mark, spec.bundle_dir)
        say(Ready((perf_counter_ns() - began) // 1000, shape, imports))

    try:
        handler, shape = _load(spec)
        _serve(spec, connection, handler, shape, lambda: ready(shape))
    except LoadError as error:
        say(StartFailed(error.kind, error.error_type, error.message, error.traceback))
        return EXIT_START_FAILED
    return 0


def _load(spec: WorkerSpec) -> tuple[object, str]:
    sys.dont_write_bytecode = True  # the bundle stays as it was deployed
    sys.path.insert(0, spec.bundle_dir)
    try:
        os.chdir(spec.bundle_dir)
        handler = load_handler(spec.handler, spec.bundle_dir)
        return handler, shape_of(handler, spec.shape)
    except BadShape as error:
        raise LoadError("bad_shape", "BadShape", str(error)) from None
    except OSError as error:
        raise LoadError("import_error", *describe(error, spec.bundle_dir)) from None


def _serve(spec: WorkerSpec, connection: socket.socket, handler: object, shape: str, ready: Callable[[], None]) -> None:
    assert callable(handler)
    service: Service
    if shape == "asgi":
        service = AsgiService(handler, spec.bundle_dir)
    else:
        event_handler = EventHandler(handler, spec)
        if spec.concurrency == 1 and not event_handler.is_async:
            driver = SerialDriver(connection, event_handler, spec.max_body_bytes, spec.bundle_dir)
            driver.stop_on_sigterm()
            ready()
            driver.serve()
            return
        service = EventService(event_handler, spec.concurrency, spec.max_body_bytes)
    run_loop(LoopDriver(connection, service, spec.bundle_dir).serve(ready))
