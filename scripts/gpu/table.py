"""The table of a check. It is printed as it grows, and written as Markdown and as JSON."""
import json
import threading
from dataclasses import dataclass

YES, NO, NOT_COUNTED = "yes", "no", "not counted"


@dataclass(frozen=True)
class Row:
    """What was checked, what was found, what must hold, and whether it holds (YES, NO or NOT_COUNTED)."""
    what: str
    found: str
    bar: str
    ok: str


def row(what, found, bar, holds):
    return Row(what, found, bar, YES if holds else NO)


def at_least(what, value, bar, more=""):
    """A row whose value, such as a share or a ratio, must reach the bar."""
    return row(what, f"{value:.2f}{more}", f"{bar:.2f}", value >= bar)


def failed(what, reason, bar):
    return Row(what, reason, bar, NO)


def told(what, found):
    """A row that only tells something."""
    return Row(what, found, "", NOT_COUNTED)


def cell(text):
    return str(text).replace("|", "/").replace("\n", " ").strip()


class Table:
    def __init__(self, folder, about):
        """`about` has the date, the commit, the card and the driver."""
        self.folder, self.about = folder, about
        self.rows, self.seconds = [], {}
        self.lock = threading.Lock()
        heading = "{date}, {commit}, {card}, {driver}".format(**about)
        self.head = f"# {heading}\n\n| part | row | found | bar | ok |\n|---|---|---|---|---|"
        print(self.head, flush=True)
        self.write()

    def add(self, part, one):
        with self.lock:
            self.rows.append((part, one))
            print(self.line(part, one), flush=True)
            self.write()

    def note_seconds(self, part, seconds):
        with self.lock:
            self.seconds[part] = round(seconds, 1)
            self.write()

    def failures(self):
        return sum(one.ok == NO for _, one in self.rows)

    @staticmethod
    def line(part, one):
        return f"| {part} | {cell(one.what)} | {cell(one.found)} | {cell(one.bar)} | {one.ok} |"

    def write(self):
        lines = [self.head, *(self.line(part, one) for part, one in self.rows)]
        (self.folder / "table.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
        rows = [{"part": part, "what": one.what, "found": str(one.found), "bar": str(one.bar), "ok": one.ok}
                for part, one in self.rows]
        text = json.dumps({**self.about, "rows": rows, "seconds": self.seconds}, indent=1)
        (self.folder / "table.json").write_text(text + "\n", encoding="utf-8")
