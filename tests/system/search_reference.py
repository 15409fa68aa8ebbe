"""What a search must find: a small program written from docs/search.md, which reads what the file
trees received and shares no code with the product. And queries made at random, as they are typed.
"""

import datetime
import decimal
import hashlib
import json
import re

NOT_FAILED = ("COMPLETED", "CANCELLED", "PREEMPTED", "REQUEUED", "REVOKED")
SECOND = 10**9
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)


# ---- a job ---------------------------------------------------------------------------------------
def nanoseconds(text):
    """Of "2026-11-21T20:17:53.25Z"."""
    whole, _, fraction = text.rstrip("Z").partition(".")
    moment = datetime.datetime.fromisoformat(whole + "+00:00")
    return (moment - EPOCH) // datetime.timedelta(seconds=1) * SECOND \
        + int((fraction or "0").ljust(9, "0"))


def percent(ratio):
    return None if ratio is None else int(decimal.Decimal(str(ratio)) * 100)


def run_that_counts(runs):
    """Of an array that of the last task that failed, else of the last; else the last one."""
    failed = [run for run in runs if "array" in run["job"]
              and run["job"]["state"] not in NOT_FAILED]
    return max(failed or runs, key=lambda run: run["job"]["ended_at"])


def account_of(submission, runs):
    """The one that the newest run names, if its owner is verified; all of an array's must agree."""
    named = [run for run in runs if run["job"].get("account") and run["user"]["verified"]]
    accounts = {run["job"]["account"] for run in named}
    if not named:
        return submission.get("account")
    if any("array" in run["job"] for run in named):
        return accounts.pop() if len(accounts) == 1 else None
    return max(named, key=lambda run: run["job"]["ended_at"])["job"]["account"]


class Job:
    """`values`: texts of each field; `numbers`: what can be in a range, `percents` likewise."""

    def __init__(self, event, script, environment, runs):
        self.event, self.script, self.environment = event, script, environment
        self.id = event["job"]["id"]
        self.uid = event["user"].get("id")
        self.variables = dict(s.split("=", 1) for s in environment.decode().split("\0") if s)
        job, user, about = event["job"], event["user"], event["script"]
        secret = bool(event.get("redactions"))
        array = job.get("array")
        self.values = {
            "job": [self.id], "name": [job.get("name")],
            "user": [user.get("name")],
            "account": [account_of(job, runs)], "partition": [job.get("partition")],
            "qos": [job.get("qos")], "workdir": [job.get("work_dir")],
            "cluster": [event["cluster"]], "scheduler": [event["scheduler"]],
            "interpreter": [about.get("interpreter")],
            "directive": [d for full in about.get("directives", ())
                          for d in (full, re.split("[= \t]", full)[0])],
            "module": [m for full in about.get("modules", [])
                       + self.variables.get("LOADEDMODULES", "").split(":")
                       for m in (full, full.rsplit("/", 1)[0])],
            "software": [v for used in about.get("software", [])
                         for v in (used["kind"], used["name"], f"{used['kind']} {used['name']}")],
            "array": [array["job_id"], "true"] if array else ["false"],
            "secret": ["true" if secret else "false"],
            "complete": ["true" if event["complete"] else "false"],
            "verified": ["true" if user["verified"] else "false"],
            "script": [hashlib.sha256(script).hexdigest()],
            "state": [], "exit": [], "node": [], "finding": ["secret"] if secret else []}
        self.numbers = {"submitted": nanoseconds(event["time"])}
        self.percents = {}
        if runs:
            self.take(run_that_counts(runs))
        self.values = {field: [v for v in values if v] for field, values in self.values.items()}
        self.numbers = {field: v for field, v in self.numbers.items() if v is not None}
        self.percents = {field: v for field, v in self.percents.items() if v is not None}

    def take(self, run):
        job, usage = run["job"], run["usage"]
        request, memory = usage.get("request", {}), usage.get("memory", {})
        cpu, gpu = usage.get("cpu", {}), usage.get("gpu", {})
        self.values["state"] = [job.get("state")]
        self.values["node"] = [node["host"]["name"] for node in usage.get("nodes", ())]
        self.values["finding"] += [finding["id"] for finding in usage["findings"]]
        if "exit_code" in job:
            code, signal = job["exit_code"].split(":")
            self.numbers["exit"] = int(code)
            self.values["exit"] = [f"signal:{signal}"] if signal != "0" else []
        partial = usage["quality"]["status"] == "partial"
        peak = None if partial and "efficiency_ratio" not in memory else memory.get("peak_bytes")
        asked = memory.get("limit_bytes", request.get("memory_bytes"))
        cpus = cpu.get("allocated", request.get("cpus"))
        gpus = gpu.get("count", request.get("gpus"))
        self.numbers |= {
            "started": nanoseconds(job["started_at"]), "ended": nanoseconds(job["ended_at"]),
            "elapsed": int(usage["elapsed_seconds"]), "mem": peak, "req.mem": asked,
            "cpu": cpus, "req.cpu": cpus, "gpu": gpus, "req.gpu": gpus}
        if "time_limit_seconds" in request:
            self.numbers["req.time"] = int(request["time_limit_seconds"])
        self.percents = {
            "mem": None if peak is None or not asked else peak * 100 // asked,
            "cpu": percent(cpu.get("efficiency_ratio")),
            "gpu": percent(gpu.get("utilization_ratio"))}


def read_jobs(archive, usage):
    """All jobs of a tree of scripts, with what a tree of usage says of them."""
    runs = {}
    for file in usage.glob("[!.]*.json"):
        run = json.loads(file.read_bytes())
        of = run["job"].get("array", {}).get("job_id", run["job"]["id"])
        runs.setdefault(of, []).append(run)
    return {name: Job(archive.metadata(name), (archive.path / f"{name}.sh").read_bytes(),
                      (archive.path / f"{name}.env").read_bytes(), runs.get(name, []))
            for name in archive.scripts()}


# ---- whether a query holds -----------------------------------------------------------------------
def is_word(byte):
    return bytes([byte]).isalnum() or byte >= 0x80


def holds_text(text, where, prefix=False):
    """A word or phrase: whole words, any case of ASCII letters, blanks as one."""
    needle = text.encode()
    pattern = rb"[ \t]+".join(re.escape(part) for part in re.split(rb"[ \t]+", needle))
    if is_word(needle[0]):
        pattern = rb"(?<![0-9A-Za-z\x80-\xff])" + pattern
    if is_word(needle[-1]) and not prefix:
        pattern += rb"(?![0-9A-Za-z\x80-\xff])"
    return re.search(pattern, where, re.IGNORECASE) is not None


def is_like(pattern, value):
    """A value of a field: as a whole, in any case, `*` for anything."""
    wanted = ".*".join(re.escape(part) for part in pattern.split("*"))
    return re.fullmatch(wanted, value, re.IGNORECASE | re.DOTALL) is not None


def holds(query, job):
    kind, *rest = query
    if kind == "and":
        return all(holds(child, job) for child in rest)
    if kind == "or":
        return any(holds(child, job) for child in rest)
    if kind == "not":
        return not holds(rest[0], job)
    if kind == "text":
        return holds_text(rest[0], job.script, rest[1])
    if kind == "env":
        return holds_text(rest[0], job.environment)
    if kind == "variable":
        name, pattern = rest
        return name in job.variables and is_like(pattern, job.variables[name])
    if kind == "expression":
        flags = re.MULTILINE | (re.IGNORECASE if rest[1] else 0)
        return re.search(rest[0].encode(), job.script, flags) is not None
    if kind == "range":
        field, is_percent, low, high, _ = rest
        value = (job.percents if is_percent else job.numbers).get(field)
        return value is not None and (low is None or value >= low) \
            and (high is None or value <= high)
    field, pattern = rest
    if field == "script":
        return job.values[field][0].startswith(pattern.lower())
    if field == "user" and pattern == job.uid:
        return True
    return any(is_like(pattern, value) for value in job.values[field])


# ---- queries -------------------------------------------------------------------------------------
def quoted(text):
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def typed(query):
    """As a person types it."""
    kind, *rest = query
    if kind == "and":
        return "(" + " ".join(map(typed, rest)) + ")"
    if kind == "or":
        return "(" + " OR ".join(map(typed, rest)) + ")"
    if kind == "not":
        return "NOT " + typed(rest[0])
    if kind == "text":
        bare = re.fullmatch(r"[A-Za-z0-9_.$][A-Za-z0-9_./=$-]*", rest[0]) \
            and rest[0] not in ("OR", "AND", "NOT")
        return (rest[0] if bare else quoted(rest[0])) + ("*" if rest[1] else "")
    if kind == "env":
        return "env:" + quoted(rest[0])
    if kind == "expression":
        return "/" + rest[0].replace("/", "\\/") + "/" + ("i" if rest[1] else "")
    if kind == "range":
        return rest[-1]
    field, value = rest
    return ("env." if kind == "variable" else "") + field + ":" \
        + (quoted(value) if " " in value else value)


def piece_of(rng, text):
    """Some characters of one line that are neither blanks at their ends nor too many."""
    line = rng.choice([part for part in text.splitlines() if part.strip()])
    begin = rng.randrange(len(line))
    piece = line[begin:begin + rng.randrange(1, 25)].strip()
    return piece or line.strip()[:10]


def text_leaf(rng, job):
    text = job.script.decode("utf-8", "ignore")
    choice = rng.randrange(9)
    if choice < 3:
        return ("text", rng.choice(re.findall(r"[A-Za-z0-9]+", text)), False)
    if choice < 5:
        return ("text", piece_of(rng, text), False)
    if choice == 5:
        word = rng.choice(re.findall(r"[A-Za-z0-9]{3,}", text))
        return ("text", word[:rng.randrange(2, len(word))], True)
    if choice == 6:
        name = rng.choice(list(job.variables))
        value = job.variables[name]
        return ("variable", name, "*" if not value or rng.randrange(4) == 0 else value)
    if choice == 7:
        return ("env", rng.choice([v for v in job.variables.values() if v]))
    expression = rng.choice((r"^#SBATCH.*--mem=\d+G", r"run_0[12]", r"gmx\s+m\w+$", "np.*vasp",
                             r"/(bash|python3)$", r"a[-;]b", r"[0-9]{2,}"))
    return ("expression", expression, rng.randrange(2) == 0)


def field_leaf(rng, job):
    field = rng.choice([field for field, values in job.values.items() if values])
    value = rng.choice(job.values[field])
    if field == "user" and rng.randrange(3) == 0:
        return ("field", field, job.uid)
    if field == "script":
        return ("field", field, value[:rng.randrange(4, 65)])
    if rng.randrange(3) == 0 and " " not in value \
            and field not in ("job", "array", "secret", "complete", "verified", "exit"):
        value = rng.choice((value[:2] + "*", "*" + value[-2:], "*"))
    return ("field", field, value.upper() if rng.randrange(4) == 0 and field != "job" else value)


def moment_bound(rng, value):
    """What is typed for a year, month, day, hour or minute, its first and its last nanosecond."""
    begin = EPOCH + datetime.timedelta(seconds=value // SECOND)
    length = rng.randrange(5)
    names = ("year", "month", "day", "hour", "minute")
    fields = {"month": 1, "day": 1, "hour": 0, "minute": 0, "second": 0}
    begin = begin.replace(**{n: v for n, v in fields.items() if n not in names[:length + 1]})
    if length == 0:
        end = begin.replace(year=begin.year + 1)
    elif length == 1:
        end = (begin + datetime.timedelta(days=31)).replace(day=1)
    else:
        end = begin + datetime.timedelta(**{names[length] + "s": 1})
    text = begin.strftime(("%Y", "%Y-%m", "%Y-%m-%d", "%Y-%m-%dT%HZ", "%Y-%m-%dT%H:%MZ")[length])
    low, high = ((t - EPOCH) // datetime.timedelta(seconds=1) * SECOND for t in (begin, end))
    return text, low, high - 1


def bound(rng, field, value, is_percent):
    """What is typed for a bound near the value, and the least and greatest that it means."""
    if field in ("submitted", "started", "ended"):
        return moment_bound(rng, value)
    value = max(0, value + rng.choice((-1, 0, 0, 0, 1)))
    if is_percent:
        return f"{value}%", value, value
    if field in ("mem", "req.mem"):
        halves = value >> 29
        text, value = rng.choice(((str(value), value), (f"{value >> 20}M", value >> 20 << 20),
                                  (f"{halves / 2}G", halves << 29)))
    elif field in ("elapsed", "req.time"):
        minutes, hours = value // 60, value // 3600
        clock = f"{hours % 24:02}:{minutes % 60:02}:{value % 60:02}"
        text, value = rng.choice(((f"{value}s", value), (f"{minutes}m", minutes * 60),
                                  (f"{hours}h{minutes % 60}m", minutes * 60),
                                  (f"{hours // 24}-{clock}", value)))
    else:
        text = str(value)
    return text, value, value


def range_leaf(rng, job, other):
    """A range of a field, from a value that one job has or to that of another."""
    field = rng.choice(list(job.numbers))
    is_percent = field in job.percents and rng.randrange(2) == 0
    of = (job.percents if is_percent else job.numbers)[field]
    text, low, high = bound(rng, field, of, is_percent)
    if field == "submitted" and rng.randrange(2) == 0:
        return ("range", field, False,
                *rng.choice(((low, None, f"since:{text}"), (low, None, f"after:{text}"),
                             (None, low - 1, f"before:{text}"), (None, high, f"until:{text}"),
                             (low, high, f"time:{text}"))))
    until = (other.percents if is_percent else other.numbers).get(field, of)
    end, _, most = bound(rng, field, max(of, until), is_percent)
    forms = [(low, high, text), (high + 1, None, f">{text}"), (low, None, f">={text}"),
             (None, low - 1, f"<{text}"), (None, high, f"<={text}"), (low, None, f"{text}.."),
             (None, high, f"..{text}")]
    if low <= most:
        forms.append((low, most, f"{text}..{end}"))
    if not is_percent:
        forms.append((None, None, "*"))
    low, high, text = rng.choice(forms)
    return ("range", field, is_percent, low, high, f"{field}:{text}")


def make_query(rng, jobs, depth=2):
    if depth == 0 or rng.randrange(3) == 0:
        job = rng.choice(jobs)
        return rng.choice((lambda: text_leaf(rng, job), lambda: field_leaf(rng, job),
                           lambda: range_leaf(rng, job, rng.choice(jobs))))()
    kind = rng.choice(("and", "and", "or", "not"))
    children = 1 if kind == "not" else rng.randrange(2, 4)
    return (kind, *(make_query(rng, jobs, depth - 1) for _ in range(children)))
