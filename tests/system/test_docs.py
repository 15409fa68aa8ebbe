"""Each command in README.md and docs/ is run, or is listed in NOT_RUN with what runs it instead.
Links lead somewhere, options exist.

A block that is marked ```sh or ```console, or that shows a prompt, is a script: `bash -eu` runs it
in a folder of its own, with a daemon that holds a job 4711, an old archive to import, and a dead
letter. Places that an installed system has (/etc/scriptorium, /var/lib/scriptorium, ...) are
replaced by places in that folder; sudo and systemctl by stand-ins. Daemon and commands are an
ordinary user's, so that a command that slips in cannot change the machine that tests it.
"""

import os
import re
import shutil
import struct
import subprocess

import pytest

import harness
from harness import ROOT, Daemon, scriptorium

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

# (page, beginning of the block) -> what runs it instead, or why nothing does. One that fits no
# block any more fails.
NOT_RUN = {
    ("README.md", "./quickstart "): "CI itself: it builds everything and starts a Slurm",
    ("README.md", "alice$ sbatch"): "system_slurm does the same with a real Slurm",
    ("docs/catalog.md", "scriptorium_backup"): "test_search.py, beside a daemon that writes",
    ("docs/consume.md", "kcat -C -q -e -b kafka1.example.org:9093"):
        "a broker with logins; test_kafka_rights.py has one",
    ("docs/consume.md", "kcat "): "test_kafka_consume.py, on a real broker",
    ("docs/consume.md", "kafka-topics.sh "): "Kafka's own scripts; tests/support/kafka-admin does "
                                             "it for the tests",
    ("docs/install.md", "apt install "): "the tests of the packages, in a root of their own",
    ("docs/install.md", "useradd "): "it changes the machine; the tests of the packages do the "
                                     "same in a root of their own",
    ("docs/install.md", "cmake --preset release"): "CI itself: the release build and "
                                                   "its installation",
    ("docs/long-jobs.md", "#!/bin/bash"): "test_run.py, in jobs of a real Slurm",
    ("docs/long-jobs.md", "alice$ scriptorium checkpoint "): "test_checkpoint_images.py, on images "
                                                             "that the service makes",
    ("docs/migrate.md", "TZ=UTC sacct "): "system_import, on a real Slurm with its accounting",
    ("docs/move-jobs.md", "root# scriptorium-migrate "): "test_migrate.py, on a real Slurm",
    ("docs/preempt.md", "alice$ scriptorium-migrate "): "test_preempt.py, on a real Slurm",
    ("docs/page.md", "apt-get install "): "it changes the machine; test_page_proxies.py has the "
                                          "same modules and files",
    ("docs/page.md", "curl -sS -u alice https://"): "test_page_api.py asks for the same",
    ("docs/performance.md", "cmake --preset release"): "by hand, on an idle machine: the bench",
    ("docs/performance.md", "perf record"): "by hand: perf needs the kernel's leave",
    ("docs/performance.md", "mkdir /tmp/journal && valgrind"): "by hand: the bench under valgrind",
    ("docs/operate.md", "scriptorium sinks list "): "system_sinks, with a second sink to fill "
                                                    "and to forget",
    ("docs/operate.md", "scriptorium owners list "): "system_owners_later, on a real Slurm with "
                                                     "its accounting",
    ("docs/redact.md", "$ scriptorium redact job.sh"): "redact_test.cc; it needs a leaky script",
    ("docs/secure.md", "systemctl stop scriptorium\nscriptorium redact "):
        "test_redact_command.py: it needs a daemon that has stopped",
    ("docs/search-in-kibana.md", "curl "): "system_elasticsearch_assets; it needs a Kibana",
    ("docs/testing.md", "./quickstart test"): "CI itself",
    ("docs/testing.md", "build/fuzz/"): "CI itself: every fuzz target",
    ("docs/usage.md", "$ scriptorium report"): "test_usage_page.py, on jobs that it makes",
    ("docs/usage.md", "(srun "): "test_usage_here.py, in jobs of a real Slurm",
    ("docs/usage.md", "scriptorium usage "): "likewise",
    ("docs/usage.md", "$ scriptorium usage "): "likewise",
}
DEAD = "8f0c3a17"  # the dead letter of the pages


class Block:
    def __init__(self, page, line, language, text):
        self.page, self.line, self.language, self.text = page, line, language, text

    @property
    def name(self):
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    def reason_not_to_run(self):
        for (page, beginning), reason in NOT_RUN.items():
            if str(self.page.relative_to(ROOT)) == page and self.text.startswith(beginning):
                return reason
        return None

    def script(self):
        """The commands alone: what follows a prompt, with its continuation lines; without
        prompts, all of it."""
        if not re.search(r"^(\w*[$#]) ", self.text, re.M) or self.language == "sh":
            return self.text
        kept, open_quote = [], False
        for line in self.text.splitlines():
            found = re.match(r"\w*[$#] (.*)", line)
            if found or open_quote:
                command = found.group(1) if found else line
                open_quote = (open_quote ^ (command.count('"') % 2 == 1)) or command.endswith("\\")
                kept.append(command)
        return "\n".join(kept) + "\n"


def blocks():
    for page in PAGES:
        text = page.read_text()
        for found in re.finditer(r"^```(\w*)\n(.*?)^```", text, re.M | re.S):
            language, body = found.groups()
            if language in ("sh", "bash", "console") or language == "" \
        and re.search(r"^(\$ |scriptorium [a-z])", body, re.M):
                yield Block(page, text.count("\n", 0, found.start()) + 1, language, body)


ALL = list(blocks())
RUN = [b for b in ALL if b.reason_not_to_run() is None]

STAND_INS = {
    "sudo": '#!/bin/sh\nexec "$@"\n',
    # Only what the unit can do, and only of units that we ship.
    "systemctl": """#!/bin/sh
case "$1" in start|stop|restart|reload|enable|status|edit) ;; *) echo "systemctl: unknown command $1" >&2; exit 1 ;; esac
[ "$2" != --now ] || {{ [ "$1" = enable ] && set -- enable "$3"; }}
[ -f "{root}/packaging/systemd/$2.service" ] || {{ echo "systemctl: no unit $2" >&2; exit 1; }}
[ "$1" != reload ] || kill -HUP "$(cat {work}/pid)"
""",
    # The command with the configuration that the page's reader has; `run` on a state_dir of its
    # own, and ended once it answers.
    "scriptorium": """#!/usr/bin/env python3
import os, signal, subprocess, sys, time
arguments = sys.argv[1:]
command = next((a for a in arguments if not a.startswith("-")), "")
config = {{"run": "run.toml", "import": "import.toml"}}.get(command, "scriptorium.toml")
if "--config" not in arguments and command not in ("version", "man", "completion", "plugins"):
    arguments += ["--config", os.path.join("{work}/etc", config)]
if command != "run" or "--once" in arguments:
    os.execv("{scriptorium}", ["{scriptorium}", *arguments])
process = subprocess.Popen(["{scriptorium}", *arguments])
deadline = time.monotonic() + 60
while not os.path.exists("{work}/run/control.sock") and process.poll() is None and time.monotonic() < deadline:
    time.sleep(0.02)
if process.poll() is None:
    process.send_signal(signal.SIGTERM)
sys.exit(process.wait(60))
""",
}


class OrdinaryDaemon(Daemon):
    """As an ordinary user, also where the tests are root's."""

    def __init__(self, directory, config_text, user):
        super().__init__(directory, config_text)
        self.user = {"user": user.pw_uid, "group": user.pw_gid,
                     "extra_groups": []} if harness.IS_ROOT else {}

    def start(self):
        for path in [self.directory, *self.directory.rglob("*")] if self.user else []:
            os.chown(path, self.user["user"], self.user["group"], follow_symlinks=False)
        return super().start(**self.user)


@pytest.fixture
def reader(work, ordinary_user):
    """reader(block): runs it where a reader of the page would; returns the CompletedProcess."""
    daemons = []

    def run(block):
        spool = harness.Spool(work / "spool")
        spool.write(4711)
        old = work / "old" / "20241103"
        old.mkdir(parents=True)
        (old / "job.1_script").write_bytes(b"#!/bin/sh\n\0")
        (old / "job.1_environment").write_bytes(struct.pack("=I", 1) + b"A=b\0")
        (work / "etc").mkdir()
        (work / "bin").mkdir()
        (work / "here").mkdir()
        for name, text in STAND_INS.items():
            path = work / "bin" / name
            path.write_text(text.format(root=ROOT, work=work, scriptorium=harness.SCRIPTORIUM))
            path.chmod(0o755)

        letters = "deadletters" in block.text
        # Who looks into the journal finds something only while it waits.
        waits = '"SELECT' in block.text
        sources, sinks = {}, {"archive": {"layout": "blocked/{job_id}.{ext}"}} if waits else {}
        if waits:
            (work / "archive").mkdir(mode=0o750)
            (work / "archive" / "blocked").write_text("a file, not a folder")
        plugins = [str(harness.BUILD / "plugins")]
        searches = "scriptorium search" in block.text
        if searches:
            sinks["catalog"] = {"root": str(work / "state-catalog"), "kinds": ["job.*"]}
        if letters:
            (work / "recorded" / "1poison").mkdir(parents=True)
            (work / "recorded" / "1poison" / "script").write_bytes(b"#!/bin/sh\n")
            sources["replay"] = {"folder": str(work / "recorded")}
            sinks["thrower"] = {"plugin": "throwing"}
            plugins.append(str(harness.TEST_PLUGINS))
        text = harness.config_text(work, sources, sinks, plugin_dirs=plugins)
        daemon = OrdinaryDaemon(work, text, ordinary_user)
        daemons.append(daemon)
        for name, change in (("scriptorium.toml", {}),
                             ("run.toml", {"state": "run", "archive": "run-archive"}),
                             ("import.toml", {"archive": "archive"})):
            own = text
            for old_name, new_name in change.items():
                own = own.replace(f'"{work}/{old_name}"', f'"{work}/{new_name}"')
            (work / "etc" / name).write_text(own)
        daemon.start()
        (work / "pid").write_text(str(daemon.process.pid))
        os.chmod(work / "pid", 0o644)
        daemon.wait_status(lambda s: (s["sinks"]["archive"]["last_error"] if waits else
                                      s["sinks"]["archive"]["acknowledged"]
                                      == (2 if letters else 1))
                           and (not searches or s["sinks"]["catalog"]["acknowledged"] == 1)
                           and (not letters or s["sinks"]["thrower"]["dead"] == 1),
                           "the daemon has what the pages speak of")
        script = block.script()
        if letters:
            script = script.replace(
                DEAD, daemon.request({"command": "deadletters.list"})[0]["event_id"][:8])
        for place, here in {"/etc/scriptorium": work / "etc", "/var/lib/scriptorium": work
                            / "state", "/srv/old-archive": work / "old",
                            "/srv/archive": work / "archive",
                            "/tmp/": f"{work}/here/"}.items():
            script = script.replace(place, str(here))
        # "beside journal.db", as the page says; else where nothing lies.
        where = work / "state" if "journal.db" in script and "/journal.db" not in script \
        else work / "here"
        return subprocess.run(["bash", "-euo", "pipefail", "-c", script], cwd=where,
                              stdin=subprocess.DEVNULL, text=True,
                              capture_output=True, timeout=120 * harness.PATIENCE,
                              env={**os.environ, "PATH": f"{work}/bin:{os.environ['PATH']}",
                                   "HOME": str(work / "here")},
                              **daemon.user)
    yield run
    for daemon in daemons:
        daemon.cleanup()


@pytest.mark.parametrize("block", RUN, ids=[b.name for b in RUN])
def test_the_commands_of_the_pages_work(reader, block):
    if "sqlite3" in block.text and not shutil.which("sqlite3"):
        pytest.skip("sqlite3 is not installed: apt-get install sqlite3 zstd")
    if DEAD in block.text and not (harness.TEST_PLUGINS / "throwing.so").exists():
        pytest.skip("no dead letter without the test plugins: build the target broken_plugins")
    result = reader(block)
    assert result.returncode == 0, \
        f"{block.name}\n{block.script()}\n--- {result.returncode}\n{result.stdout}\n{result.stderr}"


def test_what_is_not_run_is_known_and_few(capsys):
    used = set()
    lines = []
    for block in ALL:
        reason = block.reason_not_to_run()
        if reason:
            lines.append(f"not run: {block.name}: {reason}")
            used.add(next(k for k, r in NOT_RUN.items() if r == reason
                          and block.text.startswith(k[1])))
    with capsys.disabled():
        print(f"\n{len(RUN)} blocks of commands are run, {len(lines)} are not:", *lines, sep="\n  ")
    assert not set(NOT_RUN) - used, "such a block is not there any more"
    assert len(RUN) >= 12


# ---- what a script would not find ----------------------------------------------------------------
def help_of(path, cache={}):
    if path not in cache:
        cache[path] = scriptorium(*path, "--help", check=False)
    return cache[path]


def test_every_command_and_option_that_a_page_names_exists():
    """In inline code and in every block, run or not: `scriptorium deadletters retry --all` has such
    a command and option."""
    commands = set(re.findall(r"^  (\w+)\s{2,}",
                              help_of(()).stdout.split("Subcommands:")[1].split("\n\n")[0], re.M))
    commands |= {"man", "completion"}
    seen, wrong = 0, []
    for page in [*PAGES, *sorted(ROOT.glob("backends/*/README.md")),
                 *sorted(ROOT.glob("schedulers/*/README.md"))]:
        text = page.read_text()
        codes = re.findall(r"(?<!`)`(?!`)([^`]+)`",
                           re.sub(r"^```.*?^```", "", text, flags=re.M | re.S))
        codes += [line for body in re.findall(r"^```(?:sh|console|bash)?\n(.*?)^```", text,
                                              re.M | re.S) for line in body.splitlines()]
        for code in codes:
            for found in re.finditer(r"(?:^|[$#;&|] )\s*scriptorium ([a-z]\w*)([^|;&#\n]*)",
                                     code.strip()):
                words = found.group(2).split()
                path = (found.group(1),)
                if path[0] not in commands:
                    if path[0] == "import" or not re.match(r"\w+$", path[0]) or path[0] in ("user",
                                                                                            ):
                        continue
                    wrong.append(f"{page.name}: scriptorium {path[0]}")
                    continue
                if path in (("deadletters",), ("sinks",)) and words and re.fullmatch(r"[a-z]+",
                                                                                     words[0]):
                    path += (words[0],)
                    if help_of(path).returncode != 0:
                        wrong.append(f"{page.name}: scriptorium {' '.join(path)}")
                        continue
                for option in re.findall(r"(?<!\S)(--[a-z][a-z-]*)", " ".join(words)):
                    seen += 1
                    if not re.search(rf"(?<![\w-]){option}(?![\w-])", help_of(path).stdout):
                        wrong.append(f"{page.name}: scriptorium {' '.join(path)} has no {option}")
    assert not wrong, "\n".join(wrong)
    assert seen > 20


def anchor(heading):
    """As GitHub makes it of a heading."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def links(page):
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
    return re.findall(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)", text)


def test_every_link_leads_somewhere():
    broken = []
    for page in [*PAGES, *sorted((ROOT / "docs" / "reference").glob("*.md"))]:
        for link in links(page):
            if re.match(r"https?:|mailto:", link):
                continue
            path, _, fragment = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            if not target.exists():
                broken.append(f"{page.relative_to(ROOT)}: {link}")
            elif fragment and target.suffix == ".md":
                headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", target.read_text(),
                                                           flags=re.M | re.S), re.M)
                if fragment not in {anchor(h) for h in headings}:
                    broken.append(f"{page.relative_to(ROOT)}: {link}: no such heading")
    assert not broken, "\n".join(broken)


def test_every_page_and_every_message_can_be_reached():
    index = {(ROOT / "docs" / link.partition("#")[0]).resolve()
             for link in links(ROOT / "docs" / "README.md") if "://" not in link}
    missing = [p.name for p in (ROOT / "docs").glob("*.md") if p.name != "README.md"
               and p.resolve() not in index]
    assert not missing, f"docs/README.md does not name {missing}"
    sections = re.findall(r"^## (.*)$", (ROOT / "docs" / "messages.md").read_text(), re.M)
    linked = {link.partition("#")[2] for link in links(ROOT / "docs" / "operate.md")
              if link.startswith("messages.md#")}
    unlinked = [s for s in sections if anchor(s) not in linked]
    assert not unlinked, f"docs/operate.md does not lead to these parts of messages.md: {unlinked}"


def test_ids_that_a_page_names_are_explained_or_only_informative():
    explained = set(re.findall(r"^\|\s*`([A-Z][A-Z0-9_]+)`",
                               (ROOT / "docs" / "messages.md").read_text(), re.M))
    told = set()
    for folder in ("core", "backends", "schedulers"):
        for source in (ROOT / folder).rglob("*.cc"):
            told |= set(re.findall(r'\b(?:info|debug)\(\s*"([A-Z][A-Z0-9_]+)"', source.read_text()))
    unknown = []
    for page in (ROOT / "docs" / n for n in ("operate.md", "secure.md", "configure.md",
                                             "migrate.md", "capture.md", "delivery.md")):
        for name in set(re.findall(r"`([A-Z]{2,}_[A-Z_]+)`", page.read_text())):
            if name not in explained | told and not name.startswith(("CAP_", "FAN_", "IN_",
                                                                     "SLURM_CONF", "SLURM_JWT")):
                unknown.append(f"{page.name}: {name}")
    assert not unknown, "\n".join(unknown)
