"""`FairQueue`: who waits, and who is next."""

from collections import Counter, deque
from collections.abc import Hashable, Iterable, Iterator
from itertools import chain
from typing import Generic, Protocol, TypeVar


class OfTenant(Protocol):
    """What a tenant wants to run. Tenants share a machine as equals, however much each wants."""

    @property
    def tenant(self) -> Hashable:
        """Whose it is."""


T = TypeVar("T", bound=OfTenant)


class FairQueue(Generic[T]):
    """Items that wait to run. The next is of the tenant with the fewest running ones.

    Of such tenants it is the one whose turn was longest ago, and the items of one tenant are in
    order of arrival. Not thread-safe, except for iteration.
    """

    def __init__(self) -> None:
        self._waiting: dict[Hashable, deque[T]] = {}
        """By tenant, in the order of their turns."""

    def __iter__(self) -> Iterator[T]:
        # From any thread: `list` keeps the GIL, as these iterators are in C.
        return iter(list(chain.from_iterable(self._waiting.values())))

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def add(self, item: T, *, is_first: bool = False) -> None:
        """Append an item to those of its tenant; is_first: or prepend it."""
        queue = self._waiting.setdefault(item.tenant, deque())
        queue.appendleft(item) if is_first else queue.append(item)

    def next(self, running: Iterable[T] = ()) -> T | None:
        """The next item; None if there is none."""
        if not self._waiting:
            return None
        counts = Counter([item.tenant for item in running])
        tenant = min(self._waiting, key=counts.__getitem__)
        return self._waiting[tenant][0]

    def take(self, item: T) -> None:
        """Remove an item that is to run; the turn passes on to other tenants."""
        self.remove(item)
        if queue := self._waiting.pop(item.tenant, None):
            self._waiting[item.tenant] = queue

    def remove(self, item: T) -> None:
        """Remove an item that no longer wants to run; its tenant keeps its turn."""
        queue = self._waiting[item.tenant]
        queue.remove(item)
        if not queue:
            del self._waiting[item.tenant]
