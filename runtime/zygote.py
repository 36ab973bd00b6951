"""A process with an environment's modules imported, forked to make workers; parent and undertaker of them all.

It obeys its node agent over one socket (`runtime.control`), runs one thread and never a handler's code. While there
is nothing to do it keeps one child forked in advance, the spare, which only has to be told which worker it is. When a
worker ends, its process group and whatever it left outside of that are killed. When the agent ends, all end.
"""

from __future__ import annotations

import gc
import importlib
import os
import select
import signal
import socket
import sys
from time import perf_counter_ns
from typing import Any, NamedTuple, NoReturn

from runtime import control, forkable, worker
from runtime.linux import die_with_parent, environment_of, inherit_orphans, name_process, own_children, thread_count

#: Names of modules that could not be imported, told in the note.
FAILURES_SHOWN = 5
#: Quiet time after which a spare is forked: not while others are just starting.
SPARE_DELAY_MS = 100
_HANDLED = (signal.SIGTERM, signal.SIGCHLD)


def preload(names: list[str]) -> tuple[str, list[str]]:
    """Import these modules. Gives why forking is not allowed any more (empty: it is), and what failed to import."""
    failed: list[str] = []
    for name in names:
        threads = thread_count()
        try:
            importlib.import_module(name)
        except BaseException as error:  # whatever a module does at import, it is only not preloaded
            failed.append(f"{name} ({type(error).__name__})")
        if thread_count() > threads and (reason := forkable.why_not()):
            return f"after importing {name}: {reason}", failed
    return forkable.why_not(), failed


class Child(NamedTuple):
    """A forked process that waits for its order."""

    pid: int
    orders: socket.socket


class Zygote:
    """See the module."""

    def __init__(self, agent: socket.socket, bare_modules: frozenset[str]) -> None:
        self._agent = agent
        self._bare_modules = bare_modules
        self._pid = os.getpid()
        #: Living workers: name by process id.
        self._workers: dict[int, str] = {}
        self._spare: Child | None = None
        self._forkable = False
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._terminated = False

    def load(self, names: list[str]) -> None:
        """Import and tell the agent; from here on orders may come."""
        began = perf_counter_ns()
        reason, failed = preload(names)
        note = f"not preloaded: {', '.join(failed[:FAILURES_SHOWN])}" if failed else ""
        if len(failed) > FAILURES_SHOWN:
            note += f" and {len(failed) - FAILURES_SHOWN} more"
        gc.collect()
        gc.freeze()  # a collection in a child would otherwise write to, and so copy, all that is shared
        self._forkable = not reason
        load_us = (perf_counter_ns() - began) // 1000
        control.send(self._agent, {"op": "loaded", "forkable": not reason, "note": reason or note, "load_us": load_us})

    def obey(self) -> None:
        """Until the agent is gone or says so by a signal."""
        inherit_orphans()
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, self._on_sigterm)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        poll = select.poll()
        poll.register(self._agent, select.POLLIN)
        poll.register(self._wake_read, select.POLLIN)
        while not self._terminated:
            wants_spare = self._forkable and self._spare is None
            ready = [fileno for fileno, _ in poll.poll(SPARE_DELAY_MS if wants_spare else None)]
            if not ready and wants_spare:
                self._prepare_spare()
            if self._wake_read in ready:
                os.read(self._wake_read, 4096)
                self._reap()
            if self._agent.fileno() in ready:
                received = control.receive(self._agent)
                if received is None:
                    return
                self._take(*received)

    def _on_sigterm(self, _signum: int, _frame: object) -> None:
        self._terminated = True

    def _take(self, order: dict[str, Any], descriptors: list[int]) -> None:
        if order["op"] == "start":
            self._start(order, descriptors)
        elif order["op"] in ("signal", "kill"):
            for pid in [pid for pid, name in self._workers.items() if name == order["worker"]]:
                if order["op"] == "kill":
                    self._kill_group(pid)
                else:
                    os.kill(pid, order["signal"])

    # -- making workers ----------------------------------------------------------------------------------

    def _start(self, order: dict[str, Any], descriptors: list[int]) -> None:
        name: str = order["spec"]["worker"]
        try:
            pid = self._give(order, descriptors)
        except OSError as error:
            self._tell_exit(name, -1, 0, f"it could not be forked: {error.strerror}")
            return
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        self._workers[pid] = name
        control.send(self._agent, {"op": "started", "worker": name, "pid": pid})

    def _give(self, order: dict[str, Any], descriptors: list[int]) -> int:
        """Have the spare, or a new child, take this order; gives its process id. Raises OSError."""
        spare, self._spare = self._spare, None
        for child in (spare, None):
            pid, orders = child or self._fork()
            with orders:
                try:
                    control.send(orders, order, tuple(descriptors))
                    return pid
                except (BrokenPipeError, ConnectionResetError):
                    if child is None:
                        raise
        raise AssertionError("the second child is a new one")

    def _prepare_spare(self) -> None:
        try:
            self._spare = self._fork()
        except OSError:
            self._forkable = False  # no spares, then; a worker's own fork may still succeed

    def _fork(self) -> Child:
        ours, theirs = control.socket_pair()
        signal.pthread_sigmask(signal.SIG_BLOCK, _HANDLED)
        try:
            pid = os.fork()
            if pid == 0:
                self._be_the_child(ours, theirs)
        except OSError:
            ours.close()
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDLED)
            theirs.close()
        return Child(pid, ours)

    def _be_the_child(self, ours: socket.socket, theirs: socket.socket) -> NoReturn:
        try:
            signal.set_wakeup_fd(-1)
            for handled in _HANDLED:
                signal.signal(handled, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDLED)
            ours.close()
            self._agent.close()
            os.close(self._wake_read)
            os.close(self._wake_write)
            worker.run_forked(theirs, self._pid, self._bare_modules)
        finally:
            os._exit(worker.EXIT_RUNTIME_FAILED)

    # -- burying them ------------------------------------------------------------------------------------

    def _reap(self) -> None:
        """Every child that has ended: a worker with all it left behind, or an orphan."""
        swept = True
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended is None:
                if swept:
                    return
                swept = True
                self._kill_strays()  # their own children come to us when they are dead
                continue
            pid = ended.si_pid
            if self._spare is not None and self._spare.pid == pid:
                self._spare.orders.close()
                self._spare = None
            name = self._workers.pop(pid, None)
            if name is not None:
                self._kill_group(pid)  # before the wait below: until then the number is not given to another
            os.waitpid(pid, 0)
            swept = False
            if name is not None:
                self._kill_strays()
                by_signal = ended.si_code != os.CLD_EXITED
                code, signum = (-1, ended.si_status) if by_signal else (ended.si_status, 0)
                self._tell_exit(name, code, signum, "")

    def _kill_group(self, pid: int) -> None:
        for kill, target in ((os.killpg, pid), (os.kill, pid)):  # it may not lead a group yet
            try:
                kill(target, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                pass

    def _kill_strays(self) -> None:
        """Kill orphans that came to us and belong to no living worker."""
        spare = self._spare.pid if self._spare is not None else 0
        for pid in own_children():
            if pid not in self._workers and pid != spare and not self._belongs_to_the_living(pid):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass

    def _belongs_to_the_living(self, pid: int) -> bool:
        try:
            if os.getsid(pid) in self._workers:
                return True
        except ProcessLookupError:
            return True  # gone by itself
        name = environment_of(pid).get(b"SAMOVAR_WORKER", b"").decode(errors="replace")
        return name in self._workers.values()

    def _tell_exit(self, name: str, code: int, signum: int, note: str) -> None:
        control.send(self._agent, {"op": "exited", "worker": name, "code": code, "signal": signum, "note": note})

    def end_all(self) -> None:
        """Take every worker along, and all that they started."""
        for pid in list(self._workers):
            self._kill_group(pid)
        self._workers.clear()
        self._spare = None  # its end of the socket is closed; it is a stray now
        for _ in range(_BURIALS_MAX):
            self._kill_strays()
            try:
                os.waitpid(-1, 0)
            except ChildProcessError:
                return


#: Processes waited for at the end; more than that many is a fork bomb, which we do not outrun.
_BURIALS_MAX = 10_000


def main(descriptor: int, parent: int, bare_modules: frozenset[str]) -> None:
    """A zygote's whole life; never returns."""
    # No child yet: nothing to take along, so a hanging import cannot keep this process when the agent is gone.
    die_with_parent(signal.SIGKILL, parent)
    name_process("samovar-zygote")
    agent = socket.socket(fileno=descriptor)
    agent.set_inheritable(False)
    first = control.receive(agent)
    if first is not None:
        zygote = Zygote(agent, bare_modules)
        try:
            zygote.load(first[0]["preload"])
            die_with_parent(signal.SIGTERM, parent)
            zygote.obey()
        except OSError:
            pass  # the agent is gone in the middle of a word
        zygote.end_all()
    sys.stderr.flush()
    os._exit(0)
