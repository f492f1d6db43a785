"""Many requests at once: which of them run in the next step, and who runs it."""

from ov_specdec.scheduling.request import MAX_UNREAD, Cancelled, Request
from ov_specdec.scheduling.scheduler import Limits, Scheduler
from ov_specdec.scheduling.turns import Turns
from ov_specdec.scheduling.worker import Worker

__all__ = ["MAX_UNREAD", "Cancelled", "Limits", "Request", "Scheduler", "Turns", "Worker"]
