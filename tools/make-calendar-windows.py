"""Writes days, weeks and months in all time zones, computed by Python.

test/unit/calendar-windows.test.ts compares src/ledger/windows.ts with this table. Use the tzdata
version of Node (`process.versions.tz`):

    python3 -m venv /tmp/zones && /tmp/zones/bin/pip install tzdata==2026.3
    /tmp/zones/bin/python tools/make-calendar-windows.py > test/fixtures/calendar-windows.txt

The same seed and version write the same table. `--instants 200` writes a longer one.

A line has an instant, and then three numbers each for its day, its week and its month: the start,
the end, and the end of the window that follows. The instant is in seconds since 1970. The other
numbers are the distance to it in seconds. All of them are in base 36.
"""

import argparse
import random
import zoneinfo
from bisect import bisect_right
from datetime import date, datetime, timedelta, timezone
from importlib import resources

FIRST_YEAR, LAST_YEAR = 1990, 2040
QUARTER, HOUR, DAY = 900, 3600, 86_400
PERIODS = ("P1D", "P1W", "P1M")


def seconds_of(day: date) -> int:
    return int(datetime(day.year, day.month, day.day, tzinfo=timezone.utc).timestamp())


def first_day(day: date, period: str) -> date:
    if period == "P1W":
        return day - timedelta(days=day.weekday())
    return day.replace(day=1) if period == "P1M" else day


def days_near(day: date, period: str) -> list[date]:
    """The first days of the windows around a date."""
    days = {"P1D": 1, "P1W": 7, "P1M": 31}[period]
    # The 15th, so that 31 days are one month.
    middle = day.replace(day=15) if period == "P1M" else day
    return [first_day(middle + timedelta(days=n * days), period) for n in range(-2, 4)]


class Zone:
    """Boundaries of a time zone. It reads the local date and nothing else."""

    def __init__(self, name: str) -> None:
        self.info = zoneinfo.ZoneInfo(name)
        self.starts: dict[date, int] = {}

    def local(self, at: int) -> datetime:
        return datetime.fromtimestamp(at, self.info)

    def start_of(self, day: date) -> int:
        """Returns the first second that has this local date or a later one."""
        if day not in self.starts:
            at = seconds_of(day) - 15 * HOUR
            while self.local(at).date() < day:
                at += QUARTER
            while self.local(at - 60).date() >= day:
                at -= 60
            self.starts[day] = at
        return self.starts[day]

    def window(self, at: int, period: str) -> tuple[int, int, int]:
        """Returns the start, the end, and the end of the window that follows."""
        days = days_near(self.local(at).date(), period)
        starts = sorted({self.start_of(day) for day in days})
        n = bisect_right(starts, at)
        return starts[n - 1], starts[n], starts[n + 1]

    def transitions(self) -> list[int]:
        """Returns the first second of each new offset."""
        found = []
        for at in range(seconds_of(date(FIRST_YEAR, 1, 1)), seconds_of(date(LAST_YEAR, 1, 1)), DAY):
            before, after = at, at + DAY
            if self.local(before).utcoffset() == self.local(after).utcoffset():
                continue
            while after - before > 1:
                middle = (before + after) // 2
                if self.local(middle).utcoffset() == self.local(at).utcoffset():
                    before = middle
                else:
                    after = middle
            found.append(after)
        return found


class Sample:
    """Chooses instants of a zone: some anywhere, the others where mistakes are likely."""

    def __init__(self, zone: Zone, name: str, seed: int) -> None:
        self.zone = zone
        self.source = random.Random(f"{seed} {name}")
        self.transitions = zone.transitions()

    def below(self, limit: int) -> int:
        return int(self.source.random() * limit)

    def one_of(self, values: list[int] | tuple[int, ...]) -> int:
        return values[self.below(len(values))]

    def anywhere(self) -> int:
        first = seconds_of(date(FIRST_YEAR, 1, 1))
        return first + self.below(seconds_of(date(LAST_YEAR, 1, 1)) - first)

    def near_transition(self) -> int:
        if not self.transitions:
            return self.anywhere()
        distance = self.one_of((-DAY, -HOUR, -60, -1, 0, 1, 60, HOUR - 1, HOUR, DAY // 2, DAY))
        return self.one_of(self.transitions) + distance

    def near_boundary(self, at: int, period: str) -> int:
        return self.zone.window(at, period)[self.below(2)] + self.one_of((-1, 0, 1))

    def near_half(self, at: int, period: str) -> int:
        start, end, _ = self.zone.window(at, period)
        return (start + end) // 2 + self.one_of((-1, 0, 1))

    def instants(self, count: int) -> list[int]:
        kinds = (
            self.anywhere,
            self.anywhere,
            self.near_transition,
            self.near_transition,
            lambda: self.near_boundary(self.near_transition(), "P1D"),
            lambda: self.near_boundary(self.anywhere(), PERIODS[self.below(3)]),
            lambda: self.near_half(self.near_transition(), PERIODS[self.below(3)]),
        )
        return sorted(kinds[n % len(kinds)]() for n in range(count))


def base36(number: int) -> str:
    if number < 0:
        return "-" + base36(-number)
    digits = ""
    while True:
        number, digit = divmod(number, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + digits
        if number == 0:
            return digits


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--instants", type=int, default=7)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()

    zoneinfo.reset_tzpath(())
    try:
        import tzdata
    except ImportError:
        raise SystemExit("Install the package tzdata: see the beginning of this file.") from None
    table = resources.files(tzdata).joinpath("zoneinfo/zone1970.tab").read_text()
    names = sorted(line.split("\t")[2] for line in table.splitlines() if line[:1] not in ("", "#"))

    print(f"tzdata {tzdata.IANA_VERSION}")
    for name in ["UTC", *names]:
        zone = Zone(name)
        print(name)
        for at in Sample(zone, name, options.seed).instants(options.instants):
            ends = [end - at for period in PERIODS for end in zone.window(at, period)]
            print(" ".join(base36(number) for number in (at, *ends)))


main()
