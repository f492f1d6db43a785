"""The log: one JSON object per line, on stderr."""

import json
import logging
import sys
from datetime import datetime, timezone
from typing import Any

from ov_specdec.server.access import Record

LOGGERS = ("ov_specdec", "uvicorn.error")


class JsonLines(logging.Formatter):
    """A log record as JSON: time, level, and a message or the fields of a request."""

    def format(self, record: logging.LogRecord) -> str:
        """One line of ASCII; a traceback is one of its values.

        Escaped, no text of a request can end the line for a reader, or control a terminal.
        """
        time = datetime.fromtimestamp(record.created, timezone.utc).isoformat(
            timespec="milliseconds"
        )
        line: dict[str, Any] = {"time": time, "level": record.levelname.lower()}
        request = getattr(record, "record", None)
        if isinstance(request, Record):
            line.update(request.as_dict())
        else:
            line["message"] = record.getMessage()
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line)


def set_up_log(level: str) -> None:
    """Send the server's log to stderr. level: debug, info, warning or error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    for name in LOGGERS:
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.propagate = False
        logger.setLevel(level.upper())
    # uvicorn's messages at each start and stop.
    logging.getLogger("uvicorn.error").setLevel("WARNING" if level == "info" else level.upper())
