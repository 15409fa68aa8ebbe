"""Random queries against a catalog, each also answered by the small program in search_reference.py.

SCRIPTORIUM_SEARCH_QUERIES=5000 asks more of them, SCRIPTORIUM_SEARCH_SEED repeats a run.
"""

import contextlib
import datetime
import json
import os
import pwd
import random
import sqlite3
import time

from harness import Spool, wait_for
from search_reference import holds, make_query, read_jobs, typed

QUERIES = int(os.environ.get("SCRIPTORIUM_SEARCH_QUERIES", 40))
SEED = int(os.environ.get("SCRIPTORIUM_SEARCH_SEED", random.SystemRandom().randrange(1 << 30)))
SEGMENT = 52  # jobs
SINKS = ("archive", "catalog", "usage")
DAY = 86400
WORDS = ["gmx", "mdrun", "run_01", "run_02.tpr", "mpirun", "-np", "--mem=16G", "$SCRATCH/in",
         "a-b",
         "VASP", "vasp_std", "2>&1", "x==y", "caf\u00e9", "naïve", "foo.bar", "#", "|", "if",
         "then",
         "./run", "running", "00", "0", "[ -f x ]", "\\", '"quoted"', "a;b", "GROMACS/2023.1",
         "%j"]
MODULES = ["GROMACS/2023.1", "GROMACS/2024.2", "GCC/12", "ORCA", "chem/orca/5"]
SHELLS = ["/bin/bash", "/bin/sh", "/usr/bin/python3"]
VARIABLES = {"OMP_NUM_THREADS": ["1", "8"], "MODE": ["fast", "Slow", "a b"], "EMPTY": [""]}
UIDS = [0, 1, 2, 65534]
ENDS = [("COMPLETED", "0:0")] * 3 + [("FAILED", "3:0"), ("FAILED", "0:9"), ("TIMEOUT", "0:0"),
                                     ("OUT_OF_MEMORY", "0:125"), ("CANCELLED by 1000", "0:15"),
                                     ("NODE_FAIL", "1:0")]


# ---- the jobs ------------------------------------------------------------------------------------
def make_script(rng):
    lines = ["#!" + rng.choice(SHELLS)]
    lines += [f"#SBATCH --{name}" for name in rng.sample(["time=5", "mem=16G", "exclusive"], 2)]
    lines += [f"module load {rng.choice(MODULES)}" for _ in range(rng.randrange(3))]
    if rng.randrange(6) == 0:
        lines.append(f"conda activate {rng.choice(('torch', 'md'))}")
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


class SlurmJob:
    """What Slurm knows of a job."""

    def __init__(self, rng, number):
        self.id, self.uid = number, rng.choice(UIDS + 2 * [50000 + number])  # without a name
        self.account = rng.choice(("chem", "Bio", "", f"p{number}"))
        self.partition, self.qos = rng.choice(("cpu", "gpu", "BIG")), rng.choice(("normal", "long"))
        self.name = rng.choice(("md", "a b", f"md-{number}"))
        self.work_dir = rng.choice(("/home/alice/run", f"/scratch/bob/{number}"))
        self.tasks = rng.randrange(2, 4) if rng.randrange(6) == 0 else 0  # 0: no array
        self.requeued = not self.tasks and rng.randrange(8) == 0
        self.submitted = int(time.time()) - rng.randrange(5 * DAY, 90 * DAY)

    def queue_row(self):
        array = f"0-{self.tasks - 1}" if self.tasks else "N/A"
        return f"{self.id}|{self.id}|{array}|{self.uid}|{self.uid}|{self.submitted}|N/A|N/A|0|PD" \
               f"|1|{self.account}@{self.qos}@{self.partition}@{self.work_dir}@{self.name}@\n"

    def runs(self, rng):
        """Rows of sacct, those of one run together; the runs end one after the other."""
        if rng.randrange(4) == 0:
            return []
        if not self.tasks:
            lives = [self.run(rng, self.id, str(self.id), 0, ("REQUEUED", "0:0"))] \
                if self.requeued else []
            return lives + [self.run(rng, self.id, str(self.id), 1, rng.choice(ENDS))]
        order = rng.sample(range(self.tasks), self.tasks)
        return [self.run(rng, 10000 + 10 * self.id + task, f"{self.id}_{task}", place,
                         rng.choice(ENDS)) for place, task in enumerate(order)]

    def run(self, rng, raw, shown, place, end):
        elapsed = rng.choice((rng.randrange(1, 600), rng.randrange(1, DAY // 2)))
        start = self.submitted + DAY * place + rng.randrange(600)
        cpus, nodes, memory = rng.choice((1, 2, 16)), rng.choice((1, 1, 2)), rng.randrange(1, 4096)
        busy = int(cpus * elapsed * rng.choice((0, rng.random(), 1)))
        used = int((memory << 20) * rng.choice((0, rng.random(), 1)))
        tres = f"cpu={cpus},mem={memory}M,node={nodes}" + rng.choice(("", ",gres/gpu=2"))
        try:
            user = pwd.getpwuid(self.uid).pw_name
        except KeyError:
            user = ""
        times = [moment(self.submitted), moment(start), moment(start + elapsed), str(elapsed),
                 "00:00:00"]
        job = [str(raw), shown, str(self.uid), str(self.uid), user, user, self.account,
               self.partition, self.qos, *times, rng.choice(("UNLIMITED", "90", "1440")), *end,
               str(nodes), str(cpus), tres, clock(busy), clock(busy), "00:00:00", "", "", "",
               "n1", self.work_dir, self.name]
        step = [f"{raw}.batch", f"{shown}.batch", "", "", "", user, "", "", "", *times, "", *end,
                "1", str(cpus), tres, clock(busy), clock(busy), "00:00:00", str(used),
                f"cpu={clock(busy)},mem={used}", "1", "n1", "", "batch"]
        return "".join("".join(field + "@" for field in row) + "\n" for row in (job, step))


def moment(seconds):
    return datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).strftime("%FT%T")


def clock(seconds):
    return f"{seconds // DAY}-{seconds // 3600 % 24:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"


class FakeSlurm:
    """squeue, and an sacct for the accounting of ended jobs, which says each row once. The sacct
    beside squeue, which knows owners, is of a Slurm without accounting."""

    def __init__(self, directory):
        self.directory = directory
        self.queue = directory / "queue"
        self.queue.write_text("")
        (directory / "squeue").write_text(
            '#!/bin/sh\nsed "s/@/${SQUEUE_FORMAT2##*:}/g" "${0%/*}/queue"\n')
        (directory / "sacct").write_text(
            "#!/bin/sh\necho Slurm accounting storage is disabled >&2\nexit 1\n")
        (directory / "ended").write_text(
            '#!/bin/sh\nfor word; do case $word in --delimiter=*) guard=${word#*=};; esac; done\n'
            f'cd {directory} && mv rows told 2>/dev/null || exit 0\nsed "s/@/$guard/g" told\n')
        for name in ("squeue", "sacct", "ended"):
            (directory / name).chmod(0o755)

    def list_jobs(self, jobs):
        rows = self.directory / "queue.new"
        rows.write_text(self.queue.read_text() + "".join(job.queue_row() for job in jobs))
        rows.rename(self.queue)

    @contextlib.contextmanager
    def without_squeue(self):
        """As if slurmctld were down."""
        away = self.queue.rename(self.directory / "away")
        yield
        away.rename(self.queue)

    def account(self, runs):
        rows = self.directory / "rows.new"
        rows.write_text("".join(runs))
        rows.rename(self.directory / "rows")


class FakeNodes:
    """Control groups as plain files, with one process, for a daemon that measures jobs."""

    def __init__(self, directory):
        self.root, self.made = directory / "cgroup", directory / "made-groups"
        self.made.mkdir()
        (self.root / "cpuacct").mkdir(parents=True)

    def group(self, job):
        return self.root / "cpuacct" / "slurm" / f"uid_{job.uid}" / f"job_{job.id}"

    def begin(self, job):
        made = self.made / f"job_{job.id}"
        (made / "step_batch" / "task_0").mkdir(parents=True)
        (made / "step_batch" / "task_0" / "cgroup.procs").write_text(f"{os.getpid()}\n")
        (made / "cpuacct.usage").write_text("2000000000\n")
        self.group(job).parent.mkdir(parents=True, exist_ok=True)
        made.rename(self.group(job))  # whole and at once, as the kernel makes them

    def end(self, job):
        for path in sorted(self.group(job).rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        self.group(job).rmdir()


# ---- asking --------------------------------------------------------------------------------------
def ask(daemon, query):
    return daemon.command("search", "--in", "catalog", "--ids", "--all", typed(query), check=False,
                          env={"TZ": "UTC"})


def ids_in(result, query):
    """The ids that a search has printed."""
    assert result.returncode in (0, 1), (typed(query), result.stderr)
    ids = result.stdout.split()
    assert result.returncode == (0 if ids else 1) and len(ids) == len(set(ids)), typed(query)
    return ids


def found(query, jobs):
    return {name for name, job in jobs.items() if holds(query, job)}


def is_newest_first(answer, jobs):
    times = [jobs[name].numbers["submitted"] for name in answer if name in jobs]
    return times == sorted(times, reverse=True)


def check(query, answer, jobs):
    """Returns whether there are hits; they must be those of the reference."""
    assert sorted(answer) == sorted(found(query, jobs)), typed(query)
    assert is_newest_first(answer, jobs), typed(query)
    return bool(answer)


class Site:
    """A daemon with a file tree and a catalog, and its jobs, which come in three steps: captured,
    owner known, ended. Beside each step a search finds what is right before or after it."""

    def __init__(self, make_daemon, spool, archive, work):
        self.rng = random.Random(SEED)
        self.spool, self.archive, self.work = spool, archive, work
        self.slurm, self.made = FakeSlurm(work), Spool(work / "made")
        source = {"plugin": "usage", "accounting": "sacct", "sacct": str(work / "ended"),
                  "accounting_interval_seconds": 1, "accounting_first_hours": 0}
        self.nodes = FakeNodes(work)
        node = {"plugin": "usage", "root": str(self.nodes.root), "resolve": "none", "node": "n7",
                "interval_seconds": 1, "gpus": False, "state_file": ""}
        self.daemon = make_daemon(
            sources={"slurm": {"resolve": "slurmctld", "squeue": str(work / "squeue"),
                               "resolve_timeout_seconds": 1}, "accounting": source, "node": node},
            sinks={"catalog": {"root": str(work / "catalog"), "segment_jobs": SEGMENT,
                               "batch_max_events": SEGMENT // 4, "kinds": ["job.*", "usage.job"]},
                   "usage": {"plugin": "file", "root": str(work / "usage"), "acl": "best-effort",
                             "layout": "{job_id}.{ext}", "kinds": ["usage.job"]}}).start()
        self.scripts = [make_script(self.rng) for _ in range(SEGMENT)]
        self.jobs, self.expected = {}, dict.fromkeys(SINKS, 0)
        self.without_owner, self.moved, self.to_end = [], [], []
        self.beside = 0

    def segment(self, number, sql):
        """The only number that the statement gives."""
        file = self.work / "catalog" / "segments" / f"{number:06}.db"
        with contextlib.closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as database:
            return database.execute(sql).fetchone()[0]

    def has_sealed(self, number):
        return self.segment(number, "SELECT count(*) FROM blocks WHERE kind = 0") > 0

    def has_pending(self, number):
        return self.segment(number, "SELECT count(*) FROM pending WHERE kind = 0") > 0

    def is_quiet(self):
        sinks = self.daemon.status()["sinks"]
        return all(sinks[name]["acknowledged_total"] >= self.expected[name]
                   and sinks[name]["waiting"] == 0 for name in SINKS)

    def step(self, change, nudge=lambda: None, **events):
        """Does what changes jobs, and searches until the sinks have acknowledged those events."""
        before, results = list(self.jobs.values()), []
        for name, count in events.items():
            self.expected[name] += count
        change()

        def search():
            if before:
                query = make_query(self.rng, before)
                results.append((query, ask(self.daemon, query)))
            nudge()
            return self.is_quiet()
        wait_for(search, lambda: f"{self.expected} acknowledged\n{self.daemon.log_tail()}")
        jobs = read_jobs(self.archive, self.work / "usage")
        for query, result in results:
            answer = ids_in(result, query)
            then, now = found(query, self.jobs), found(query, jobs)
            assert then & now <= set(answer) <= then | now, typed(query)
            assert is_newest_first(answer, jobs), typed(query)
        self.beside += len(results)
        self.jobs = jobs

    def capture(self, jobs):
        entries = []
        for job in jobs:
            self.made.write(job.id, self.rng.choice(self.scripts),
                            make_environment(self.rng, job.id))
            os.utime(self.made.entry(job.id) / "script", (job.submitted, job.submitted))
            self.spool.hash_directory(job.id).mkdir(mode=0o700, exist_ok=True)
            entries.append((self.made.entry(job.id), self.spool.entry(job.id)))
        for entry, place in entries:
            entry.rename(place)

    def end(self, runs, measured):
        """Accounting says of these runs what became of them, and a node what these jobs used."""
        self.daemon.wait_status(
            lambda s: s["sources"]["node"]["plugin_status"]["jobs"] == len(measured),
            "the node has seen its jobs")
        self.slurm.account(runs)
        for job in measured:
            self.nodes.end(job)

    def round(self, known, later):
        """So many jobs whose owner is known at once, and later if at all. Some have an end."""
        rng, first = self.rng, len(self.jobs) + 1
        new = [SlurmJob(rng, number) for number in range(first, first + known + later)]
        measured, others = new[:4], new[4:]
        for job in measured:
            self.nodes.begin(job)
        self.slurm.list_jobs(new[:known])
        self.step(lambda: self.capture(new[:known]), archive=known, catalog=known)
        if later:
            with self.slurm.without_squeue():
                self.step(lambda: self.capture(new[known:]), archive=later, catalog=later)
        self.without_owner += new[known:]
        moved = [job for job in self.without_owner if rng.randrange(2)]
        self.without_owner = [job for job in self.without_owner if job not in moved]
        self.moved += [str(job.id) for job in moved]
        self.step(lambda: self.slurm.list_jobs(moved),
                  lambda: self.daemon.command("owners", "retry", "--no-wait"),
                  archive=len(moved), catalog=len(moved))
        self.to_end += [runs for runs in (job.runs(rng) for job in others) if runs]
        ended = [runs.pop(0) for runs in self.to_end if rng.randrange(3)]
        self.to_end = [runs for runs in self.to_end if runs]
        count = len(ended) + len(measured)
        self.step(lambda: self.end(ended, measured), usage=count, catalog=count)


def damage(segment):
    """Without rows, word index and lists, only the contents are left."""
    with contextlib.closing(sqlite3.connect(segment)) as database, database:
        for table in ("jobs", "fields", "chunks", "daily", "names", "script_blocks", "pairs"):
            database.execute(f"DELETE FROM {table}")
        database.execute("INSERT INTO words(words) VALUES('delete-all')")


def test_each_query_finds_what_the_page_says(make_daemon, spool, archive, work):
    print(f"SCRIPTORIUM_SEARCH_SEED={SEED}")
    site = Site(make_daemon, spool, archive, work)
    daemon = site.daemon

    def check_all():
        """Returns how many have hits."""
        return sum(check(query, ids_in(ask(daemon, query), query), site.jobs)
                   for query in queries)
    site.round(SEGMENT // 2, SEGMENT // 2)
    site.round(SEGMENT * 3 // 4, 0)
    assert site.has_sealed(1) and not site.has_sealed(2) and site.has_pending(2)
    queries = [make_query(site.rng, list(site.jobs.values())) for _ in range(QUERIES)]
    # What only a moved job may have, so that no other job hides its absence from an index.
    queries += [("field", "user", site.jobs[name].uid) for name in site.moved]
    assert check_all() >= len(queries) / 2
    site.round(SEGMENT * 3 // 4, 0)
    assert site.has_sealed(2) and not site.has_sealed(3) and site.has_pending(3)
    check_all()
    hits = json.loads(daemon.command("search", "--json", "--all", "*").stdout)["hits"]
    assert len(hits) == len(site.jobs)
    print(f"{site.beside} queries beside the ingest")
    # The same from a catalog that was made once more from its contents.
    for segment in (work / "catalog" / "segments").glob("*.db"):
        damage(segment)
    assert daemon.command("catalog", "check", check=False).returncode == 1
    rebuilt = json.loads(daemon.command("catalog", "rebuild", "--json").stdout)
    assert rebuilt["figures"]["segments_rewritten"] == 3 and not rebuilt["findings"]
    assert daemon.command("catalog", "check").stdout.splitlines()[-1] == "intact"
    check_all()
