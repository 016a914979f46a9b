"""The process of a cluster: how it is found, started, listened to and ended.

It never outlives this process. A signal that asks the kernel for that exists on Linux alone, and is bound to a thread;
so a shell watches a pipe whose other end is here, and which the kernel closes however this process ends.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import queue
import shutil
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from typing import IO, Any, Protocol

from kubewright._errors import ClusterError

# Becomes the program, and leaves a watcher behind that ends it when the pipe on standard input closes without a word.
# The program keeps the number of the shell; the watcher holds nothing else that somebody could wait for.
LAUNCHER = """exec 3<&0
{ read -r _ <&3 || kill -TERM $$; } >/dev/null 2>&1 &
exec "$@" 3<&- </dev/null"""

# How many of the program's last lines are kept for error messages.
LINES = 100


class Log(Protocol):
    """Where the standard error of the program goes: any text file."""

    def write(self, text: str, /) -> object: ...


def _packaged() -> str | None:
    """The program that was installed with this package: wheels for a platform have it, wherever pip puts commands."""
    try:
        files = importlib.metadata.files("kubewright") or []
    except importlib.metadata.PackageNotFoundError:
        return None
    # By the name of its own, and not by a folder: pip has a scheme for users, one for a --target, and others.
    programs = (str(file.locate()) for file in files if file.name == "kubewright" and "bin" in file.parts)
    return next(filter(shutil.which, programs), None)


def find_program(named: str | os.PathLike[str] | None) -> str:
    """The path of kubewright: as named, as the environment says, of this package, or on the PATH."""
    source = "the argument `program`"
    if named is None:
        named, source = os.environ.get("KUBEWRIGHT") or None, "the environment variable KUBEWRIGHT"
    if named is None:
        found = _packaged() or shutil.which("kubewright")
        if found is None:
            raise ClusterError(
                "there is no program `kubewright` on the PATH: "
                "install it, or let the environment variable KUBEWRIGHT name it"
            )
        return found
    found = shutil.which(named)
    if found is None:
        raise ClusterError(f"{source} names {os.fspath(named)}, which is no program that can be run")
    return found


class Process:
    """A running program that is, or is about to be, a cluster."""

    def __init__(self, program: str, arguments: Sequence[str], environment: Mapping[str, str], log: Log | None) -> None:
        self._program = program
        self._log = log
        self._last: deque[str] = deque(maxlen=LINES)
        self._first: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        try:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", LAUNCHER, "sh", program, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**os.environ, **environment},
                text=True,
                encoding="utf-8",
                errors="replace",
                # A Ctrl-C is for the tests, which may still need the cluster to clean up.
                start_new_session=True,
            )
        except OSError as why:
            raise ClusterError(f"cannot start {program}: {why}") from why
        assert self._process.stdout is not None and self._process.stderr is not None
        self._readers = [
            threading.Thread(target=self._read_output, args=(self._process.stdout,), daemon=True),
            threading.Thread(target=self._read_errors, args=(self._process.stderr,), daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._process.pid

    def _read_output(self, output: IO[str]) -> None:
        line = output.readline()
        self._first.put(line.rstrip("\n") if line else None)
        # What nobody reads would fill the pipe, and stop the program.
        for _ in output:
            pass

    def _read_errors(self, errors: IO[str]) -> None:
        for line in errors:
            self._last.append(line)
            if self._log is not None:
                try:
                    self._log.write(line)
                except (OSError, ValueError):
                    # A log that is full or closed is no reason to stop the cluster.
                    self._log = None

    def ready(self, timeout: float) -> dict[str, Any]:
        """Waits until the cluster answers, and returns what it says of itself."""
        try:
            line = self._first.get(timeout=timeout)
        except queue.Empty:
            raise ClusterError(f"the cluster did not start: not ready within {timeout:g} s{self.words()}") from None
        if line is None:
            self._process.wait()
            raise ClusterError(f"the cluster ended before it was ready ({self._status()}){self.words()}")
        try:
            event = json.loads(line)
        except ValueError:
            event = None
        if not isinstance(event, dict) or event.get("event") != "ready":
            raise ClusterError(f"{self._program} said {line!r} instead of being ready; is it kubewright?{self.words()}")
        return event

    def stop(self, timeout: float) -> None:
        """Ends the process and returns when it is gone; says when it had ended before, or had to be killed."""
        wrong = None
        if self._process.poll() is not None:
            wrong = f"the cluster ended before it was stopped ({self._status()})"
        else:
            self._process.terminate()
            try:
                code = self._process.wait(timeout)
                if code != 0:
                    # A signal that is not ours came before, from somebody else.
                    when = "before" if code < 0 and code != -signal.SIGTERM else "badly when"
                    wrong = f"the cluster ended {when} it was stopped ({self._status()})"
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
                wrong = f"the cluster did not stop within {timeout:g} s and was killed"
        self._let_go()
        if wrong is not None:
            raise ClusterError(wrong + self.words())

    def _let_go(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None and self._process.stderr is not None
        try:
            # A word, and not the bare end of the pipe: by now the number may be another process's.
            self._process.stdin.write("\n")
            self._process.stdin.close()
        except OSError:
            # The watcher is gone as well.
            pass
        for reader in self._readers:
            # Somebody else may hold the pipes open; what is said from here on interests nobody.
            reader.join(timeout=1)
        if not any(reader.is_alive() for reader in self._readers):
            self._process.stdout.close()
            self._process.stderr.close()

    def _status(self) -> str:
        code = self._process.returncode
        return f"exit status {code}" if code >= 0 else f"signal {-code}"

    def words(self) -> str:
        """What the program said, to be appended to an error: its errors in words, other lines as they are."""
        if self._process.poll() is not None:
            # All that it said before it ended.
            self._readers[1].join(timeout=1)
        return "".join(f"\n  {words}" for words in map(_in_words, list(self._last)) if words)


def _in_words(line: str) -> str:
    line = line.strip()
    try:
        event = json.loads(line)
    except ValueError:
        return line
    if not isinstance(event, dict) or event.get("event") != "error":
        return line
    words = ": ".join([str(event.get("error")), *map(str, event.get("because") or [])])
    return f"{words} ({event['fix']})" if event.get("fix") else words
