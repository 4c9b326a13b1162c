"""TensorBoard's event files, written without a thread: a full disk is an error of whoever writes."""

import os
import pathlib
import socket
import time
from collections.abc import Mapping

_EVERY = 30.0  # seconds after which what was written becomes visible to others


class Events:
    """A writer of one event file. Numbers of one step are one event."""

    def __init__(self, folder: pathlib.Path, purge_step: int):
        """Makes the file; TensorBoard hides what earlier files say of `purge_step` and later steps."""
        from tensorboardX import RecordWriter
        from tensorboardX.proto.event_pb2 import Event, SessionLog

        folder.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}.{os.getpid()}"
        # An absolute path, which is never taken for an address such as gs:...
        self._records = RecordWriter(os.path.abspath(folder / name))
        self._flushed = 0.0
        version = "brain.Event:2"
        self._write(Event(wall_time=time.time(), file_version=version))
        self._write(Event(step=purge_step, file_version=version))
        self._write(Event(step=purge_step, session_log=SessionLog(status=SessionLog.START)))

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        """Appends one event: the numbers of a step, by name."""
        from tensorboardX.proto.event_pb2 import Event
        from tensorboardX.proto.summary_pb2 import Summary

        values = [Summary.Value(tag=name, simple_value=value) for name, value in numbers.items()]
        self._write(Event(wall_time=time.time(), step=step, summary=Summary(value=values)))
        if time.monotonic() - self._flushed > _EVERY:
            self.flush()

    def flush(self) -> None:
        """Writes to disk what was appended so far."""
        self._records.flush()
        self._flushed = time.monotonic()

    def close(self) -> None:
        """Closes the file; nothing can be appended afterwards."""
        self._records.close()

    def _write(self, event: object) -> None:
        self._records.write(event.SerializeToString())  # type: ignore[attr-defined]
