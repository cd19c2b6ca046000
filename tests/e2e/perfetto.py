"""What the JSON importer of Perfetto's trace processor requires of a timeline.

The importer drops, without a message to the user, events without numbers, spans that overlap without nesting, and
arrows whose ends are not in a span. Its rules are in src/trace_processor/importers/json of Perfetto's sources and in
the description of the Trace Event Format.
"""

import bisect
import collections

NUMBER = (int, float)
OF_PHASE = {
    "M": {"args": dict},
    "X": {"ts": NUMBER, "dur": NUMBER, "cat": str},
    "i": {"ts": NUMBER, "s": str},
    "s": {"ts": NUMBER, "id": str, "cat": str},
    "f": {"ts": NUMBER, "id": str, "cat": str, "bp": str},
}
METADATA = {"process_name": ("name", str), "thread_name": ("name", str), "process_sort_index": ("sort_index", int)}


def problems(timeline):
    """Returns a list of sentences, one for each event that the importer would drop or misunderstand."""
    if not isinstance(timeline, dict) or not isinstance(timeline.get("traceEvents"), list):
        return ["found no list traceEvents"]
    found = []
    if timeline.get("displayTimeUnit") not in (None, "ms", "ns"):
        found.append(f"found displayTimeUnit {timeline['displayTimeUnit']!r}, expected ms or ns")
    events = []
    for number, event in enumerate(timeline["traceEvents"]):
        wrong = _wrong_fields(event)
        found += [f"event {number}: {text}" for text in wrong]
        if not wrong:
            events.append(event)
    spans = _spans_by_thread(events)
    return found + _unnamed(events) + _overlapping(spans) + _arrows(events, spans)


def _is(value, kind):
    return isinstance(value, kind) and not isinstance(value, bool)


def _wrong_fields(event):
    if not isinstance(event, dict) or event.get("ph") not in OF_PHASE:
        return [f"found {str(event)[:80]}, expected an event of one of the phases {', '.join(OF_PHASE)}"]
    fields = {"name": str, "pid": int, "tid": int, **OF_PHASE[event["ph"]]}
    wrong = [f"found {name} {event.get(name)!r} in an event {event['ph']}, expected {kind}"
             for name, kind in fields.items() if not _is(event.get(name), kind)]
    if _is(event.get("dur"), NUMBER) and event["dur"] < 0:
        wrong.append(f"found dur {event['dur']}, expected 0 or more")
    if event["ph"] == "M" and not wrong:
        name, kind = METADATA.get(event["name"], (None, None))
        if name is None or not _is(event["args"].get(name), kind):
            wrong.append(f"found metadata {event['name']} with {event['args']}, expected one of {METADATA}")
    if event["ph"] == "i" and event.get("s") not in ("g", "p", "t"):
        wrong.append(f"found scope {event.get('s')!r} of an instant, expected g, p or t")
    if event["ph"] == "f" and event.get("bp") != "e":  # Otherwise the arrow ends at the next span.
        wrong.append(f"found bp {event.get('bp')!r} of an arrow's end, expected e")
    return wrong


def _thread(event):
    return event["pid"], event["tid"]


def _unnamed(events):
    """Each process and thread with events has exactly one name."""
    names = collections.Counter((e["name"], e["pid"]) if e["name"] == "process_name" else (e["name"], *_thread(e))
                                for e in events if e["ph"] == "M")
    found = [f"found {count} names of {what}, expected one" for what, count in names.items() if count > 1]
    threads = {_thread(e) for e in events if e["ph"] != "M"}
    found += [f"found no process_name of pid {pid}" for pid in {pid for pid, _ in threads}
              if ("process_name", pid) not in names]
    return found + [f"found no thread_name of {thread}" for thread in threads if ("thread_name", *thread) not in names]


def _ns(us):
    return round(us * 1000)


def _spans_by_thread(events):
    """Returns (begin, end, name) of the spans of each thread in nanoseconds. They are in the order in which the
    importer reads them: by beginning, and in the order of the file if they begin together."""
    spans = collections.defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            spans[_thread(event)].append((_ns(event["ts"]), _ns(event["ts"]) + _ns(event["dur"]), event["name"]))
    return {thread: sorted(of, key=lambda span: span[0]) for thread, of in spans.items()}


def _overlapping(spans):
    """A span ends before or with each span in which it begins."""
    found = []
    for thread, of_thread in spans.items():
        open_spans = []
        for begin, end, name in of_thread:
            while open_spans and open_spans[-1][0] <= begin:
                open_spans.pop()
            if open_spans and end > open_spans[-1][0]:
                found.append(f"found {name} of {thread} from {begin} to {end} ns, which ends after {open_spans[-1][1]} "
                             f"({open_spans[-1][0]} ns), in which it begins")
                continue
            open_spans.append((end, name))
    return found


def _union(spans):
    """Returns the beginnings and ends of the intervals that sorted spans cover."""
    begins, ends = [], []
    for begin, end, _ in spans:
        if not ends or begin > ends[-1]:
            begins.append(begin)
            ends.append(end)
        ends[-1] = max(ends[-1], end)
    return begins, ends


def _arrows(events, spans):
    """Each arrow has one beginning and one end, with equal names and categories, and both are in spans."""
    ends = {"s": collections.Counter(), "f": collections.Counter()}
    busy = {thread: _union(of) for thread, of in spans.items()}
    found = []
    for event in events:
        if event["ph"] not in ends:
            continue
        ends[event["ph"]][event["cat"], event["name"], event["id"]] += 1
        at = _ns(event["ts"])
        begins, ends_of = busy.get(_thread(event), ([], []))
        last = bisect.bisect_right(begins, at) - 1
        if last < 0 or at > ends_of[last]:
            found.append(f"found an end of arrow {event['id']} at {at} ns of {_thread(event)}, which is in no span")
    if ends["s"] != ends["f"]:
        found.append(f"found arrows with one end: {list((ends['s'] - ends['f']) + (ends['f'] - ends['s']))[:3]}")
    return found + [f"found {count} arrows {key}" for key, count in ends["s"].items() if count > 1]
