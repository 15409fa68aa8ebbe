"""The commands that find jobs, on a daemon's catalog, and by metadata on its file tree."""

import calendar
import csv
import datetime
import email
import email.policy
import fcntl
import io
import json
import os
import pathlib
import pty
import pwd
import struct
import re
import shutil
import sqlite3
import subprocess
import tempfile
import termios
import time

import pytest

import harness
from harness import EX_NOINPUT, EX_OK, EX_UNAVAILABLE
from test_search_reference import FakeSlurm

NOTHING_FOUND = 1
DIFFERENT = 1
STORES = ("archive", "catalog")


def gromacs(tasks, module):
    return (f"#!/bin/bash\n#SBATCH --time=01:00:00\n#SBATCH --mem=16G\nmodule load {module}\n"
            f"mpirun -np {tasks} gmx_mpi mdrun -s run_0{tasks}.tpr\n").encode()


SCRIPTS = {
    101: gromacs(16, "GROMACS/2023.1"),
    102: gromacs(16, "GROMACS/2023.1"),
    103: gromacs(32, "GROMACS/2024.2"),
    104: b"#!/usr/bin/python3\nimport numpy\nprint('gmx is not run here')\n",
    105: b"#!/bin/sh\n# caf\xe9 in Latin-1\nsleep 100 && echo 'a  b'\n",
}
ENVIRONMENTS = {
    job: [b"PATH=/opt/v%d:/usr/bin" % (2 if job == 103 else 1), b"SLURM_JOB_NAME=md", b"HOME=/root",
          b"OMP_NUM_THREADS=%d" % (8 if job == 103 else 4), b"XDG_SESSION_ID=%d" % job]
    for job in SCRIPTS
}


@pytest.fixture(scope="module")
def daemon():
    """A daemon that has delivered the five jobs to both sinks; nobody changes what it holds."""
    work = pathlib.Path(tempfile.mkdtemp(prefix="scr-", dir=harness.test_directory()))
    work.chmod(0o755)
    spool = harness.Spool(work / "spool")
    daemon = harness.Daemon(work, harness.config_text(
        work, sinks={"catalog": {"plugin": "catalog", "root": str(work / "catalog")}}))
    for job, script in SCRIPTS.items():
        spool.write(job, script, ENVIRONMENTS[job])
        # A second apart, in the order of their numbers.
        time_ns = time.time_ns() - (200 - job) * 10**9
        os.utime(spool.entry(job) / "script", ns=(time_ns, time_ns))
    daemon.start()
    for sink in STORES:
        daemon.wait_acknowledged(len(SCRIPTS), sink)
    yield daemon
    daemon.cleanup()
    shutil.rmtree(work, ignore_errors=True)


def ids(daemon, store, *query):
    result = daemon.command("search", "--in", store, "--ids", "--all", *query, check=False)
    assert result.returncode in (EX_OK, NOTHING_FOUND), result.stderr
    return sorted(result.stdout.split())


@pytest.mark.parametrize("query, jobs", [
    (["mpirun"], "101 102 103"),
    (["gmx"], "101 102 103 104"),
    (["gmx", "numpy"], "104"),
    (["gmx", "OR", "sleep"], "101 102 103 104 105"),
    (["gmx", "-numpy"], "101 102 103"),
    (['"mpirun -np 16"'], "101 102"),
    (["--mem=16G"], "101 102 103"),
    (["run_0*"], "101 102 103"),
    (["/-np (16|32)/", "module:GROMACS/2023.1"], "101 102"),
    (["module:gromacs"], "101 102 103"),
    (["env.OMP_NUM_THREADS:8"], "103"),
    (["interpreter:/usr/bin/python3"], "104"),
    (["job:105"], "105"),
    (['"a b"'], "105"),
    (["relion"], ""),
    ([], "101 102 103 104 105"),
])
def test_the_catalog_finds_the_jobs(daemon, query, jobs):
    assert ids(daemon, "catalog", *query) == jobs.split()


@pytest.mark.parametrize("query, jobs", [
    (["job:105"], "105"), (["name:m*"], "101 102 103 104 105"), (["name:other"], ""),
    (["since:1d", "-job:101"], "102 103 104 105"), (["interpreter:/usr/bin/python3"], "104"),
    ([], "101 102 103 104 105"),
])
def test_the_tree_finds_the_same_jobs_by_their_metadata(daemon, query, jobs):
    for store in STORES:
        assert ids(daemon, store, *query) == jobs.split(), store


@pytest.mark.parametrize("query", ["mpirun", "module:GROMACS", "/mp.run/", "env.HOME:/root"])
def test_the_tree_says_that_words_need_the_catalog_and_how_to_add_it(daemon, query):
    refused = daemon.command("search", "--in", "archive", query, check=False)
    assert refused.returncode == EX_UNAVAILABLE
    assert "add [sink.catalog], reload, and run `scriptorium sinks fill catalog`" in refused.stderr


def test_a_field_that_no_event_has_filled_is_not_none_found(daemon):
    for query in ("state:FAILED", "gmx mem:>1G", "started:today OR req.time:1h"):
        refused = daemon.command("search", query, check=False)
        assert refused.returncode == EX_UNAVAILABLE and refused.stdout == ""
        assert 'kinds = ["job.*", "usage.job"] in [sink.catalog]' in refused.stderr, refused.stderr
    assert ids(daemon, "catalog", "-state:*", "secret:false", "job:101") == ["101"]


def test_search_shows_the_lines_and_programs_get_json_csv_and_nul(daemon):
    for store in ("catalog",):
        text = daemon.command("search", "mdrun", "--in", store, "-C", "1").stdout
        assert "   5: mpirun -np 32 gmx_mpi mdrun" in text and "   4- module load" in text, text
        assert "\033" not in text
        found = json.loads(daemon.command("search", "mdrun", "--in", store, "--json",
                                          "--limit", "2").stdout)
        assert found["sink"] == store and found["complete"] and len(found["hits"]) == 2
        line = found["hits"][0]["lines"][0]
        begin, end = line["marks"][0]
        assert line["text"][begin:end] == "mdrun"
        rest = json.loads(daemon.command("search", "mdrun", "--in", store, "--json", "--after",
                                         found["next"]).stdout)
        all_ids = sorted(hit["job"]["id"] for hit in found["hits"] + rest["hits"])
        assert all_ids == ["101", "102", "103"]
        rows = list(csv.DictReader(io.StringIO(
            daemon.command("search", "numpy", "--in", store, "--csv").stdout)))
        assert [(row["id"], row["cluster"], row["interpreter"]) for row in rows] == \
            [("104", "lab", "/usr/bin/python3")]
    everything = daemon.command("search", "--limit", "0", "--ids").stdout.split()
    assert sorted(everything) == sorted(map(str, SCRIPTS))
    nul = daemon.command("search", "job:104", "-0", text=False).stdout
    assert nul == b"104\0"


def test_search_counts_and_shows_facets(daemon):
    assert daemon.command("search", "gmx", "--count").stdout == "4\n"
    facets = json.loads(daemon.command("search", "--facets", "module,interpreter",
                                       "--json").stdout)["facets"]
    modules = {v["value"]: v["jobs"] for v in facets[0]["values"]}
    assert modules["GROMACS/2023.1"] == 2 and modules["GROMACS/2024.2"] == 1
    for store in STORES:
        text = daemon.command("search", "--facets", "interpreter", "--csv", "--in", store).stdout
        assert "/bin/bash,3" in text.splitlines(), text


# ---- on a terminal -------------------------------------------------------------------------------
def on_terminal(daemon, *arguments, rows=50, columns=100, environment=None):
    """What the command writes to a terminal of that size, and its exit code."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    process = subprocess.Popen(
        [str(harness.SCRIPTORIUM), arguments[0], "--config", str(daemon.config), *arguments[1:]],
        stdin=follower, stdout=follower, stderr=follower,
        env={**os.environ, "TERM": "xterm", "PAGER": "cat", "NO_COLOR": "", **(environment or {})})
    os.close(follower)
    output = b""
    while True:
        try:
            piece = os.read(leader, 1 << 16)
        except OSError:
            break
        if not piece:
            break
        output += piece
    os.close(leader)
    return output.decode(errors="replace").replace("\r\n", "\n"), process.wait(60)


def test_a_terminal_gets_colour_and_a_table_of_its_width(daemon):
    text, code = on_terminal(daemon, "search", "mdrun", columns=70)
    assert code == EX_OK
    assert "\033[1;31mmdrun\033[0m" in text, text
    table = [line for line in text.splitlines() if line.startswith(("20", "\033[1mSUB"))]
    plain = [line.replace("\033[1m", "").replace("\033[0m", "") for line in table]
    assert plain and max(map(len, plain)) <= 70, plain
    text, _ = on_terminal(daemon, "search", "mdrun", environment={"NO_COLOR": "1"})
    assert "\033[1" not in text and "\033[3" not in text


def test_what_is_longer_than_the_screen_goes_to_the_pager_and_what_is_not_does_not(daemon, work):
    pager = work / "pager"
    pager.write_text(f"#!/bin/sh\necho \"[$*]\" > {work}/paged\ncat >> {work}/paged\n")
    pager.chmod(0o755)
    environment = {"PAGER": f"{pager} -x 'a b'"}
    text, code = on_terminal(daemon, "search", "gmx", rows=5, environment=environment)
    assert code == EX_OK and "SUBMITTED" not in text
    paged = (work / "paged").read_text()
    # The words of $PAGER are no shell's: the quotes stay.
    assert paged.startswith("[-x 'a b']\n") and "103" in paged
    (work / "paged").unlink()
    text, _ = on_terminal(daemon, "search", "gmx", rows=60, environment=environment)
    assert "SUBMITTED" in text and not (work / "paged").exists()


# ---- compare -------------------------------------------------------------------------------------
def test_diff_shows_script_environment_and_modules(daemon):
    for store in STORES:
        same = daemon.command("diff", "101", "102", "--in", store, check=False)
        assert same.returncode == EX_OK, same.stdout + same.stderr
        result = daemon.command("diff", "101", "103", "--in", store, check=False)
        assert result.returncode == DIFFERENT, result.stderr
        for words in ("-mpirun -np 16 gmx_mpi mdrun -s run_016.tpr\n",
                      "+mpirun -np 32 gmx_mpi mdrun -s run_032.tpr\n",
                      "  - GROMACS/2023.1\n  + GROMACS/2024.2\n",
                      "  - OMP_NUM_THREADS=4\n  + OMP_NUM_THREADS=8\n",
                      "  PATH\n    - /opt/v1\n    + /opt/v2\n"):
            assert words in result.stdout, result.stdout
        assert "XDG_SESSION_ID" not in result.stdout
        everything = daemon.command("diff", "101", "102", "--all", "--in", store, check=False)
        assert everything.returncode == DIFFERENT and "XDG_SESSION_ID" in everything.stdout
    missing = daemon.command("diff", "101", "999", check=False)
    assert missing.returncode == EX_NOINPUT and "999" in missing.stderr


def test_history_knows_the_runs_of_one_job_and_the_edit_between(daemon):
    runs = json.loads(daemon.command("history", "102", "--json", "--in", "catalog").stdout)["runs"]
    assert sorted(run["job"]["id"] for run in runs) == ["101", "102", "103"]
    edits = [run["edit"] for run in runs if run.get("edit", {}).get("lines")]
    assert any("+mpirun -np 32 gmx_mpi mdrun -s run_032.tpr" in e["lines"]
               or "-mpirun -np 32 gmx_mpi mdrun -s run_032.tpr" in e["lines"] for e in edits), runs
    alone = daemon.command("diff", "101", "--in", "catalog", check=False)
    assert alone.returncode == EX_NOINPUT
    assert "no earlier run of job 101's family" in alone.stderr
    edited = daemon.command("diff", "103", "--in", "catalog", check=False)
    assert edited.returncode == DIFFERENT
    assert "compared with job 102 of" in edited.stdout
    assert "how its jobs ended is not known" in edited.stdout


def test_show_of_a_range_comes_from_the_catalog(daemon):
    shown = daemon.command("show", "101-103", "lab/104").stdout
    assert shown.count("captured") == 4 and "lies in     catalog" in shown, shown
    assert "modules     GROMACS/2024.2" in shown
    assert daemon.command("show", "105", "--raw", text=False).stdout == SCRIPTS[105]
    other = daemon.command("show", "hpc/101", check=False)
    assert other.returncode == EX_NOINPUT


def test_software_counts_the_jobs_of_each_module(daemon):
    found = json.loads(daemon.command("software", "--json").stdout)
    modules = {s["name"]: s["jobs"] for s in found["software"] if s["kind"] == "module"}
    assert modules == {"GROMACS/2023.1": 2, "GROMACS/2024.2": 1}
    assert found["jobs"] == len(SCRIPTS)


def test_who_may_not_read_the_catalog_gets_what_the_tree_gives_him(make_daemon, spool, work,
                                                                    ordinary_user):
    if not harness.IS_ROOT:
        pytest.skip("only root can start the daemon as another user than the reader")
    daemon = make_daemon(sinks={"catalog": {"root": str(work / "catalog")}}).start()
    spool.write(101, SCRIPTS[101], ENVIRONMENTS[101])
    daemon.wait_acknowledged(1, "catalog")
    daemon.wait_acknowledged(1)
    os.chmod(work / "archive", 0o755)
    for file in (work / "archive").iterdir():
        file.chmod(0o644)
    user = {"user": ordinary_user.pw_uid, "group": ordinary_user.pw_gid, "extra_groups": []}
    found = daemon.command("search", "job:101", check=False, **user)
    assert (found.returncode, found.stderr) == (EX_OK, ""), found
    assert "101" in found.stdout
    refused = daemon.command("search", "--in", "catalog", "mpirun", check=False, **user)
    assert refused.returncode == EX_UNAVAILABLE and "reader_group" in refused.stderr
    words = daemon.command("search", "mpirun", check=False, **user)
    assert words.returncode == EX_UNAVAILABLE and "may not read the sink catalog" in words.stderr


# ---- care ----------------------------------------------------------------------------------------
def test_a_backup_beside_a_writing_daemon_is_whole_and_can_be_restored(make_daemon, make_storm,
                                                                        work):
    if not shutil.which("sqlite3"):
        pytest.skip("sqlite3 is not installed: apt-get install sqlite3")
    page = (harness.ROOT / "docs" / "catalog.md").read_text()
    backup = re.search(r"^```sh\n(.*?)^```", page, re.M | re.S).group(1)
    root = work / "catalog"
    daemon = make_daemon(sinks={"catalog": {"root": str(root), "segment_jobs": 150}}).start()
    storm = make_storm(600, rate=400)
    daemon.wait_acknowledged(200, "catalog")
    subprocess.run(["bash", "-euo", "pipefail", "-c",
                    backup.replace("/var/lib/scriptorium-catalog", str(root))
                    + f"scriptorium_backup {work}/copy"], check=True)
    storm.finish()
    daemon.wait_acknowledged(600, "catalog")
    for file in (work / "copy").rglob("*.db"):
        with sqlite3.connect(file) as db:
            assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",), file
    daemon.terminate()
    shutil.rmtree(root)
    shutil.copytree(work / "copy", root)
    daemon.start()
    restored = len(ids(daemon, "catalog"))
    assert 200 <= restored <= 600
    daemon.command("sinks", "fill", "catalog")
    harness.wait_for(lambda: len(ids(daemon, "catalog")) == 600, "what came later is there, too")


# ---- report, with the runs before ----------------------------------------------------------------
def accounting_rows(job, submitted, elapsed, memory, state="COMPLETED", cpus=1, shown=None,
                    user=None, account="chem", partition="cpu"):
    """What sacct says of a job on n1 that kept one of its CPUs busy: the job, and its step batch.
    `shown`: the id of an array's task."""
    at = [time.strftime("%FT%T", time.gmtime(t)) for t in (submitted, submitted + 5,
                                                           submitted + 5 + elapsed)]
    clock = f"{elapsed // 3600:02}:{elapsed // 60 % 60:02}:{elapsed % 60:02}"
    owner = pwd.getpwnam(user) if user else pwd.getpwuid(os.getuid())
    user, uid, shown = owner.pw_name, str(owner.pw_uid), shown or str(job)
    tres = f"cpu={cpus},mem=8192M,node=1"
    times = [*at, str(elapsed), "00:00:00"]
    rows = ([str(job), shown, uid, uid, user, user, account, partition, "normal", *times, "600",
             state, "0:0", "1", str(cpus), tres, clock, clock, "00:00:00", "", "", "", "n1", "/tmp",
             f"md_{job}"],
            [f"{job}.batch", f"{shown}.batch", "", "", "", user, "", "", "", *times, "", state,
             "0:0", "1", str(cpus), tres, clock, clock, "00:00:00", str(memory),
             f"cpu={clock},mem={memory}", "1", "n1", "", "batch"])
    return "".join("".join(field + "@" for field in row) + "\n" for row in rows)


def archived(make_daemon, work, store, events, hours=24, **core):
    """A daemon that has archived the spool and the accounting of FakeSlurm."""
    # The import asks for one part of the time after another. Like sacct, this gives each what ended
    # in it: a row that came with every part would be acknowledged as often, before the scripts are.
    ended = work / "ended"
    ended.write_text(f"""#!/bin/sh
while [ $# -gt 0 ]; do
    case $1 in
    --delimiter=*) guard=${{1#*=}} ;;
    --starttime) from=$2 ;;
    --endtime) to=$2 ;;
    esac
    shift
done
awk -F @ -v from="$from" -v to="$to" '$12 >= from && $12 <= to' {work}/rows | sed "s/@/$guard/g"
""")
    sinks = {"archive": {"kinds": ["job.*", "usage.*"]}}
    if store == "catalog":
        sinks[store] = {"root": str(work / "catalog"), "kinds": ["job.*", "usage.*"]}
    daemon = make_daemon(sources={
        "slurm": {"resolve": "slurmctld", "squeue": str(work / "squeue")},
        "usage": {"accounting": "sacct", "sacct": str(ended),
                  "accounting_interval_seconds": 1, "accounting_first_hours": hours}}, sinks=sinks,
        **core)
    daemon.start()
    daemon.wait_acknowledged(events, store)
    return daemon


MIB = 1 << 20
# id: seconds, memory, state, memory that its script asks for
RUNS = {201: (1200, 2000 * MIB, "COMPLETED", "8G"), 202: (1200, 500 * MIB, "COMPLETED", "8G"),
        203: (1200, 500 * MIB, "COMPLETED", "610M"), 204: (1300, 500 * MIB, "COMPLETED", "610M"),
        205: (400, 10 * MIB, "FAILED", "610M"), 206: (3600, 510 * MIB, "COMPLETED", "620M")}


@pytest.mark.parametrize("store", STORES)
def test_report_compares_with_the_runs_before_and_suggests_what_all_of_them_needed(
        make_daemon, spool, work, store):
    slurm, now, uid = FakeSlurm(work), int(time.time()), os.getuid()
    submitted = {job: now - 80000 + 7200 * (job - 200) for job in RUNS}
    (slurm.directory / "rows").write_text("".join(accounting_rows(job, submitted[job], *run[:3])
                                                  for job, run in RUNS.items()))
    slurm.queue.write_text("".join(
        f"{job}|{job}|N/A|{uid}|{uid}|{submitted[job]}|N/A|N/A|0|PD|1|chem@normal@cpu@/tmp@"
        f"md_{job}@\n" for job in RUNS))
    for job, (_, _, _, memory) in RUNS.items():
        spool.write(job, f"#!/bin/bash\n#SBATCH --mem={memory}\n#SBATCH -J md_{job}\n"
                         f"module load GROMACS/2024.2\nmpirun gmx_mpi mdrun -s run_{job}.tpr -v\n"
                         "cp confout.gro results\n".encode(), [b"SLURM_JOB_NAME=md_%d" % job])
        os.utime(spool.entry(job) / "script", (submitted[job], submitted[job]))
    daemon = archived(make_daemon, work, store, events=2 * len(RUNS))

    slow = daemon.command("report", "206").stdout
    assert "ITS LAST 4 RUNS" in slow and "[slower_than_before]" in slow, slow
    assert "3.0 times as long as its last 4 runs (20 min 0 s, at most 21 min 40 s)" in slow
    assert daemon.command("diff", "204", "206", check=False).returncode == DIFFERENT
    assert "scriptorium diff 204 206" in " ".join(slow.split())
    assert "Next time, by the most that 6 runs needed\n  #SBATCH --mem=2400M\n" in slow
    trend = json.loads(daemon.command("report", "206", "--json").stdout)["jobs"][0]["trend"]
    assert trend["compared_runs"] == 4 and trend["suggest"]["runs"] == 6
    assert [f["course"] for f in trend["figures"]] == ["rising", "steady", "steady"]

    # It failed early and needed little, which is no ground to ask for less.
    assert "#SBATCH --mem=2400M" in daemon.command("report", "205").stdout
    (family,) = json.loads(daemon.command("report", "--since", "2d", "--family",
                                          "--json").stdout)["families"]
    assert family["last"]["id"] == "206" and family["by_name"] == (store == "archive")
    assert (family["runs"], family["completed_runs"]) == (6, 5)
    assert family["trend"]["suggest"]["directives"][0] == "#SBATCH --mem=2400M"
    first = daemon.command("report", "201").stdout
    assert "ITS LAST" not in first and "Next time\n  #SBATCH --mem=2400M" in first, first


# id: id of the array's task, seconds before now at which it was submitted, seconds, CPUs, user,
# account, partition, module. Each ended 5 s and its seconds after it was submitted.
SUMMED = {301: (None, 50_000, 1_000, 4, "root", "chem", "cpu", "GROMACS/2024.2"),
          302: (None, 60_000, 30_000, 8, "root", "chem", "gpu", "GROMACS/2024.2"),
          303: (None, 46_405, 3_200, 2, "daemon", "bio", "cpu", None),  # ends at the beginning
          304: (None, 46_406, 3_200, 2, "daemon", "bio", "cpu", None),  # a second before
          305: (None, 80_000, 2_000, 16, "daemon", "bio", "cpu", None),
          311: ("310_0", 20_000, 700, 2, "root", "bio", "cpu", "CUDA/12"),
          312: ("310_1", 20_000, 701, 2, "root", "bio", "cpu", "CUDA/12")}
BEGIN = 43_200  # seconds before now


def expected_sums(by, jobs):
    """jobs, core seconds and wasted core seconds of each row, in and before the time since BEGIN"""
    rows = {}
    for row in jobs:
        _, submitted, elapsed, cpus, user, account, partition, module = row
        # Accounting does not say which nodes it were.
        name = {"user": user, "account": account, "partition": partition, "node": "(unknown)",
                "module": module or "(none)"}[by]
        ended = submitted - 5 - elapsed
        if ended > 2 * BEGIN:
            continue
        figures = rows.setdefault(name, [[0, 0, 0], [0, 0, 0]])[ended > BEGIN]
        for i, figure in enumerate((1, elapsed * cpus, elapsed * (cpus - 1))):
            figures[i] += figure
    return rows


@pytest.mark.parametrize("store", STORES)
def test_report_by_adds_up_what_the_jobs_of_a_time_had_and_wasted(make_daemon, spool, work, store):
    slurm, now = FakeSlurm(work), int(time.time())
    (slurm.directory / "rows").write_text("".join(
        accounting_rows(job, now - submitted, elapsed, MIB, cpus=cpus, shown=shown, user=user,
                        account=account, partition=partition)
        for job, (shown, submitted, elapsed, cpus, user, account, partition, _) in SUMMED.items()))
    scripts = {int(shown.split("_")[0]) if shown else job: (now - submitted, user, module)
               for job, (shown, submitted, _, _, user, _, _, module) in SUMMED.items()}
    scripts[320] = (now - 100, "root", None)  # waits
    scripts[321] = (now - BEGIN - 100, "root", None)
    slurm.queue.write_text("".join(
        f"{job}|{job}|{'0-1' if job == 310 else 'N/A'}|{(uid := pwd.getpwnam(user).pw_uid)}|{uid}|"
        f"{submitted}|N/A|N/A|0|PD|1|"
        f"chem@normal@cpu@/tmp@md_{job}@\n" for job, (submitted, user, _) in scripts.items()))
    for job, (submitted, _, module) in scripts.items():
        load = f"module load {module}\n" if module else ""
        spool.write(job, f"#!/bin/bash\n{load}srun ./md {job}\n".encode(),
                    [b"SLURM_JOB_NAME=md_%d" % job])
        os.utime(spool.entry(job) / "script", (submitted, submitted))
    daemon = archived(make_daemon, work, store, events=len(scripts) + len(SUMMED))

    since = time.strftime("%FT%TZ", time.gmtime(now - BEGIN))
    period = ("--since", since, "--until", time.strftime("%FT%TZ", time.gmtime(now)))
    for by in ("user", "account", "partition", "node", "module"):
        answer = json.loads(daemon.command("report", "--by", by, *period, "--json").stdout)
        figures = ("jobs", "core_seconds", "wasted_core_seconds")
        rows = {row[by]: [[part[figure] for figure in figures] for part in (row, row["before"])]
                for row in answer["rows"]}
        waiting = rows.pop("(no usage)", [[0, 0, 0], [0, 0, 0]])
        assert rows == expected_sums(by, SUMMED.values()), by
        assert waiting == [[store == "catalog", 0, 0]] * 2, by
        if by != "module":
            for at, part in ((0, answer["total"]), (1, answer["total"]["before"])):
                assert [part[figure] for figure in figures] == [
                    sum(row[at][i] for row in (*rows.values(), waiting)) for i in range(3)]
    rows = list(csv.DictReader(io.StringIO(daemon.command(
        "report", "--by", "account", "--user", "root", *period, "--csv").stdout)))
    assert [row["account"] for row in rows if row["account"] != "(no usage)"] == [
        "chem", "bio", "total"]
    assert int(rows[-1]["core_seconds"]) == 30_000 * 8 + 2 * (700 + 701)
    by_uid = daemon.command("report", "--by", "user", "--user", "0", *period, "--csv").stdout
    assert by_uid.splitlines()[-1].startswith("total,") and "daemon" not in by_uid
    assert int(by_uid.splitlines()[-1].split(",")[2]) == int(rows[-1]["core_seconds"])
    table = daemon.command("report", "--by", "user", *period).stdout
    assert re.search(r"^root +3 +67\.4 +58\.7 +87 % +> 10 x", table, re.M), table
    # From all time on, there is nothing before.
    assert "TREND" not in daemon.command("report", "--by", "user").stdout
    listed = json.loads(daemon.command("report", *period, "--json").stdout)["jobs"]
    assert {job["id"] for job in listed} == {"302", "303", "310_0", "310_1"}


# ---- report --mail -------------------------------------------------------------------------------
# id: seconds after the beginning of last week, seconds, memory, CPUs. One is of the week before.
MAILED = {401: (-50_000, 3_600, 500 * MIB, 4), 402: (10_000, 3_600, 2000 * MIB, 4),
          403: (20_000, 7_200, 500 * MIB, 8), 404: (30_000, 3_600, 500 * MIB, 4)}


@pytest.mark.parametrize("store", STORES)
def test_a_mail_has_the_sums_the_suggestion_of_the_family_and_how_many_secrets(
        make_daemon, spool, work, store):
    slurm = FakeSlurm(work)
    today = datetime.datetime.now(datetime.timezone.utc).date()
    monday = today - datetime.timedelta(days=today.weekday() + 7)
    begin = calendar.timegm(monday.timetuple())
    week = "{}-W{:02}".format(*monday.isocalendar())
    submitted = {job: begin + run[0] for job, run in MAILED.items()}
    (slurm.directory / "rows").write_text("".join(
        accounting_rows(job, submitted[job], seconds, memory, cpus=cpus, user="nobody")
        for job, (_, seconds, memory, cpus) in MAILED.items()))
    uid = pwd.getpwnam("nobody").pw_uid
    slurm.queue.write_text("".join(
        f"{job}|{job}|N/A|{uid}|{uid}|{submitted[job]}|N/A|N/A|0|PD|1|chem@normal@cpu@/tmp@"
        f"md_{job}@\n" for job in MAILED))
    for job in MAILED:
        secret = b"export API_PASSWORD=hunter2-%d\n" % job if job != 404 else b""
        spool.write(job, b"#!/bin/bash\n#SBATCH --mem=8G\n" + secret +
                    b"module load GROMACS/2024.2\nmpirun gmx_mpi mdrun -v\n",
                    [b"SLURM_JOB_NAME=md_%d" % job])
        os.utime(spool.entry(job) / "script", (submitted[job], submitted[job]))
    daemon = archived(make_daemon, work, store, events=2 * len(MAILED), hours=24 * 30,
                      report={"page_url": "https://hpc.example.org/{user}", "mail": {
                          "from": "HPC support <hpc@example.org>", "min_jobs": 3,
                          "min_wasted_core_hours": 19.9}})

    said = daemon.command("report", "--mail", "--all", "--period", week, "--dry-run",
                          str(work / "eml"), env={"TZ": "UTC"}).stdout
    assert said == f"{week}: 1 mail written to {work}/eml\n", said
    (file,) = (work / "eml").iterdir()
    assert file.name == f"nobody-{week}-lab.eml"
    mail = email.message_from_bytes(file.read_bytes(), policy=email.policy.default)
    assert mail["To"] == "nobody" and mail["From"] == "HPC support <hpc@example.org>"
    assert mail["Subject"].endswith("20 of 24 core hours unused"), mail["Subject"]
    text = " ".join(mail.get_body(("plain",)).get_content().split())
    assert "3 of your jobs on lab ended in week" in text
    assert "before, 3 of 4.0 core hours (75 %) were unused" in text.replace("3.0", "3"), text
    # The most wasteful run needed less memory than another of its family.
    assert "For example job 403, “md_403”." in text and "--mem=2400M" in text, text
    assert "https://hpc.example.org/nobody" in text and "hunter2" not in text
    # Where scripts can be searched: of the week's jobs, 402 and 403.
    assert ("2 of your jobs had a password" in text) == (store == "catalog"), text
    assert ("example job 403, 402." in text) == (store == "catalog"), text
