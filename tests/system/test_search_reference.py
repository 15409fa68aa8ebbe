"""Random queries against a catalog, each also answered by the small program below. It was written
from docs/search.md and reads what the file tree received, so it shares no code with the product.

SCRIPTORIUM_SEARCH_QUERIES=5000 asks more of them, SCRIPTORIUM_SEARCH_SEED repeats a run.
"""

import contextlib
import json
import os
import random
import re
import sqlite3

QUERIES = int(os.environ.get("SCRIPTORIUM_SEARCH_QUERIES", 60))
SEED = int(os.environ.get("SCRIPTORIUM_SEARCH_SEED", random.SystemRandom().randrange(1 << 30)))
JOBS, SEGMENT = 260, 100
WORDS = ["gmx", "mdrun", "run_01", "run_02.tpr", "mpirun", "-np", "--mem=16G", "$SCRATCH/in",
         "a-b",
         "VASP", "vasp_std", "2>&1", "x==y", "caf\u00e9", "naïve", "foo.bar", "#", "|", "if",
         "then",
         "./run", "running", "00", "0", "[ -f x ]", "\\", '"quoted"', "a;b", "GROMACS/2023.1",
         "%j"]
MODULES = ["GROMACS/2023.1", "GROMACS/2024.2", "GCC/12", "ORCA", "chem/orca/5"]
SHELLS = ["/bin/bash", "/bin/sh", "/usr/bin/python3"]
VARIABLES = {"OMP_NUM_THREADS": ["1", "8"], "MODE": ["fast", "Slow", "a b"], "EMPTY": [""]}


# ---- the jobs ------------------------------------------------------------------------------------
def make_script(rng):
    lines = ["#!" + rng.choice(SHELLS)]
    lines += [f"#SBATCH --{name}" for name in rng.sample(["time=5", "mem=16G", "exclusive"], 2)]
    lines += [f"module load {rng.choice(MODULES)}" for _ in range(rng.randrange(3))]
    for _ in range(rng.randrange(1, 12)):
        blanks = [rng.choice((" ", " ", "  ", "\t", " \t")) for _ in range(8)]
        words = [rng.choice(WORDS) for _ in range(rng.randrange(1, 8))]
        lines.append("".join(word + blank for word, blank in zip(words, blanks)))
    text = "\n".join(lines) + "\n" * rng.randrange(2)
    if rng.randrange(20) == 0:
        text += "export AWS_ACCESS_KEY_ID=AKIAQ7VJ2MZX4RTN5KWB\n"  # is not kept
    return text.encode("latin-1" if rng.randrange(4) == 0 else "utf-8")


def make_environment(rng, job):
    strings = [f"SLURM_JOB_NAME={rng.choice(('md', 'Sweep_1', 'x.y'))}", f"JOB={job}"]
    strings += [f"{name}={rng.choice(values)}" for name, values in VARIABLES.items()
                if rng.randrange(3)]
    if rng.randrange(3) == 0:
        strings.append("LOADEDMODULES=" + ":".join(rng.sample(MODULES, 2)))
    return [s.encode() for s in strings]


# ---- the reference -------------------------------------------------------------------------------
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


class Job:
    def __init__(self, archive, job):
        self.event = archive.metadata(job)
        self.id = self.event["job"]["id"]
        self.script = (archive.path / f"{job}.sh").read_bytes()
        self.environment = (archive.path / f"{job}.env").read_bytes()
        self.variables = dict(s.split("=", 1) for s in self.environment.decode().split("\0") if s)
        script = self.event["script"]
        self.values = {
            "job": [self.id], "name": [self.event["job"].get("name", "")],
            "interpreter": [script.get("interpreter", "")],
            "directive": [d for full in script.get("directives", ())
                          for d in (full, re.split("[= \t]", full)[0])],
            "module": [m for full in script.get("modules", [])
                       + self.variables.get("LOADEDMODULES", "").split(":") if full
                       for m in (full, full.rsplit("/", 1)[0])],
            "software": [v for used in script.get("software", [])
                         for v in (used["kind"], used["name"], f"{used['kind']} {used['name']}")],
            "secret": ["true" if self.event.get("redactions") else "false"],
            "complete": ["true"], "verified": ["false"]}


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
    field, pattern = rest
    return any(is_like(pattern, value) for value in job.values[field] if value)


# ---- the queries ---------------------------------------------------------------------------------
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
    if kind == "variable":
        return f"env.{rest[0]}:{quoted(rest[1]) if ' ' in rest[1] else rest[1]}"
    if kind == "expression":
        return "/" + rest[0].replace("/", "\\/") + "/" + ("i" if rest[1] else "")
    return f"{rest[0]}:{rest[1]}"


def piece_of(rng, text):
    """Some characters of one line that are neither blanks at their ends nor too many."""
    line = rng.choice([part for part in text.splitlines() if part.strip()])
    begin = rng.randrange(len(line))
    piece = line[begin:begin + rng.randrange(1, 25)].strip()
    return piece or line.strip()[:10]


def leaf(rng, job):
    text = job.script.decode("utf-8", "ignore")
    choice = rng.randrange(12)
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
    if choice == 8:
        expression = rng.choice((r"^#SBATCH.*--mem=\d+G", r"run_0[12]", r"gmx\s+m\w+$", "np.*vasp",
                                 r"/(bash|python3)$", r"a[-;]b", r"[0-9]{2,}"))
        return ("expression", expression, rng.randrange(2) == 0)
    field = rng.choice(list(job.values))
    value = rng.choice([v for v in job.values[field] if v] or ["none"])
    if field in ("name", "module", "interpreter") and rng.randrange(3) == 0:
        value = value[:2] + "*"
    return ("field", field, value.upper() if rng.randrange(4) == 0 and field != "job" else value)


def make_query(rng, jobs, depth=2):
    if depth == 0 or rng.randrange(3) == 0:
        return leaf(rng, rng.choice(jobs))
    kind = rng.choice(("and", "and", "or", "not"))
    children = 1 if kind == "not" else rng.randrange(2, 4)
    return (kind, *(make_query(rng, jobs, depth - 1) for _ in range(children)))


def ask(daemon, jobs, query):
    """Whether there are hits; they must be those of the reference."""
    expected = sorted(job.id for job in jobs.values() if holds(query, job))
    result = daemon.command("search", "--in", "catalog", "--ids", "--all", typed(query),
                            check=False)
    assert result.returncode == (0 if expected else 1), (typed(query), result.stderr)
    answer = result.stdout.split()
    assert sorted(answer) == expected, typed(query)
    times = [jobs[job].event["time"] for job in answer]
    assert times == sorted(times, reverse=True), "the newest first"
    return bool(expected)


def damage(segment):
    """Without rows, word index and lists, only the contents are left."""
    with contextlib.closing(sqlite3.connect(segment)) as database, database:
        for table in ("jobs", "fields", "chunks", "daily", "names", "script_blocks", "pairs"):
            database.execute(f"DELETE FROM {table}")
        database.execute("INSERT INTO words(words) VALUES('delete-all')")


def test_each_query_finds_what_the_page_says(make_daemon, spool, archive, work):
    print(f"SCRIPTORIUM_SEARCH_SEED={SEED}")
    rng = random.Random(SEED)
    scripts = [make_script(rng) for _ in range(JOBS // 2)]  # most are submitted again
    ids = list(range(1, JOBS + 1))
    daemon = make_daemon(sinks={"catalog": {"root": str(work / "catalog"),
                                            "segment_jobs": SEGMENT}}).start()
    for job in ids:
        spool.write(job, rng.choice(scripts), make_environment(rng, job))
        if job % SEGMENT == 0 or job == JOBS:  # the next batch begins a segment
            daemon.wait_acknowledged(job, "catalog")
    daemon.wait_acknowledged(JOBS)
    assert len(list((work / "catalog" / "segments").glob("*.db"))) == 3
    jobs = {str(job): Job(archive, job) for job in ids}
    queries = [make_query(rng, list(jobs.values())) for _ in range(QUERIES)]
    found_some = sum(ask(daemon, jobs, query) for query in queries)
    assert found_some >= QUERIES / 2
    hits = json.loads(daemon.command("search", "--json", "--all", "*").stdout)["hits"]
    assert len(hits) == JOBS
    # The same from a catalog that was made once more from its contents.
    for segment in (work / "catalog" / "segments").glob("*.db"):
        damage(segment)
    assert daemon.command("catalog", "check", check=False).returncode == 1
    rebuilt = json.loads(daemon.command("catalog", "rebuild", "--json").stdout)
    assert rebuilt["figures"]["segments_rewritten"] == 3 and not rebuilt["findings"]
    assert daemon.command("catalog", "check").stdout.splitlines()[-1] == "intact"
    for query in queries:
        ask(daemon, jobs, query)
