#!/usr/bin/env python3
"""check_tree.py CHECK [ARGUMENT]: one check of the source tree; prints every problem as file:line:
words and exits 1.

  includes            arrows go one way: a plugin includes core/api, core/base, its own folder, the
                      system, and schedulers/slurm_client if it asks Slurm; core/api and core/base
                      include nothing above them; core includes and names no plugin; headers say
                      #pragma once, and are what their .cc includes first
  messages            every error and warning id of the sources is once in docs/messages.md, and
                      nothing else does
  faults              every named fault point is in docs/testing.md, and nothing else does
  private             nothing refers to places that a user of this repository does not have
  shell               shellcheck on every shell script
  columns             prose and code end at column 100: C++, Python, Markdown, and the comments of
                      shell scripts
  examples COMMAND    every ```toml example of README.md, docs/ and the plugins' READMEs,
                      packaging/scriptorium.toml and each file of plugins.d, unchanged and with
                      its comments taken away, is a configuration that COMMAND takes
  committed           no file is larger than a fixture may be, and none has a name that a program
                      takes for an option
  waits               no system test waits for less than a minute, and no fast test asserts that
                      something takes less: a busy machine would fail it
  texts               every text of the pages is in core/page/texts.txt, once and used: templates
                      have no words of their own, sources name only keys that are there
  exports FOLDER      every plugin in FOLDER exports its descriptor and nothing else
Exit 77: skipped, with the reason.
"""

import ast
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import tokenize

ROOT = pathlib.Path(__file__).resolve().parents[2]
problems = []


def problem(file, line, words):
    problems.append(f"{file.relative_to(ROOT)}:{line}: {words}")


def skip(reason):
    print(f"SKIPPED: {reason}")
    sys.exit(77)


def files(*patterns):
    for pattern in patterns:
        for file in sorted(ROOT.glob(pattern)):
            if file.is_file() and "build" not in file.relative_to(ROOT).parts[:1]:
                yield file


def lines(file):
    return enumerate(file.read_text(errors="replace").splitlines(), 1)


def sources(*folders):
    for folder in folders:
        yield from files(f"{folder}/**/*.h", f"{folder}/**/*.cc")


CHECKPOINT_USES = ("core/api/options.h", "core/api/logger.h", "core/config/config.h",
                   "core/config/config_file.h", "core/config/toml_reader.h", "core/daemon/log.h",
                   "core/daemon/process.h")
# The command for a user's own images reads them; nothing else of the service is in the command.
CHECKPOINT_COMMAND = "core/cli/checkpoint.cc"
CHECKPOINT_FOR_COMMAND = ("checkpoint/image.h", "checkpoint/saved_images.h")
SLURM_PLUGINS = ("schedulers/slurm/", "schedulers/usage/")


# ---- includes ------------------------------------------------------------------------------------
def check_includes():
    for file in sources("core", "backends", "schedulers", "checkpoint"):
        path = file.relative_to(ROOT)
        top, folder = path.parts[0], path.parts[1]
        own = f"{top}/{folder}/"
        if file.suffix == ".h" and "#pragma once" not in file.read_text():
            problem(file, 1, "no #pragma once")
        # Then compiling the file shows that the header compiles alone; tests/headers compiles those
        # that have no file.
        header = file.with_suffix(".h")
        if file.suffix == ".cc" and header.is_file():
            first = re.search(r'^\s*#\s*include\s*(\S+)', file.read_text(), re.M)
            if not first or first.group(1) != f'"{header.relative_to(ROOT)}"':
                problem(file, 1,
                        f'"{header.relative_to(ROOT)}" is to be the first include, so that it is '
                        f'seen to compile alone')
        for number, line in lines(file):
            found = re.match(r'\s*#\s*include\s*"([^"]+)"', line)
            if found:
                name = found.group(1)
                if not (ROOT / name).is_file():
                    problem(file, number, f'"{name}" is not a path from the top of the tree')
                elif top == "checkpoint":
                    if not name.startswith(("checkpoint/", "core/base/", *CHECKPOINT_USES)):
                        problem(file, number,
                                f'checkpoint/ may include core/base, the reader of configurations '
                                f'and the logger, not "{name}"')
                elif top != "core":
                    shared = ("schedulers/slurm_client/",) if own in SLURM_PLUGINS else ()
                    if not name.startswith(("core/api/", "core/base/", own, *shared)):
                        problem(file, number,
                                f'a plugin may include core/api, core/base and its own folder '
                                f'only, not "{name}"')
                elif folder == "base" and not name.startswith("core/base/"):
                    problem(file, number, f'core/base may include core/base only, not "{name}"')
                elif folder == "api" and not name.startswith(("core/base/", "core/api/")):
                    problem(file, number,
                            f'core/api may include core/api and core/base only, not "{name}"')
                elif str(path) == CHECKPOINT_COMMAND and name in CHECKPOINT_FOR_COMMAND:
                    pass
                elif not name.startswith("core/"):
                    problem(file, number, f'core must not include a plugin: "{name}"')
            third_party = re.match(r"\s*#\s*include\s*<(nlohmann/|toml|CLI/|sqlite3|zstd|spdlog/|"
                                   r"fmt/|boost/|openssl/|sys/acl)", line)
            if third_party and file.suffix == ".h" and path.parts[:2] in (("core", "api"),
                                                                          ("core", "base")):
                problem(file, number,
                        f"a third-party header ({third_party.group(1)}) in core/api or core/base")
    plugins = sorted(p.name for folder in ("backends", "schedulers")
                     for p in (ROOT / folder).iterdir() if p.is_dir())
    # Words of the language or of every program; a mention of these is no mention of the plugin.
    plugins = [p for p in plugins if p not in ("file", "null", "stdout")]
    for file in sources("core"):
        for number, line in lines(file):
            code = line.split("//")[0]
            for name in plugins:
                if re.search(rf'"{name}"', code) and "plugin" not in line.lower() \
    and "example" not in line.lower():
                    problem(file, number, f'core names the plugin "{name}"')


# ---- messages ------------------------------------------------------------------------------------
def check_messages():
    page = ROOT / "docs" / "messages.md"
    documented = {}
    if not page.exists():
        problems.append("docs/messages.md: is not there")
    else:
        for number, line in lines(page):
            found = re.match(r"\|\s*`?([A-Z][A-Z0-9_]{3,})`?\s*\|", line)
            if found:
                if found.group(1) in documented:
                    problem(page, number,
                            f"{found.group(1)} stands here and in line "
                            f"{documented[found.group(1)]}")
                documented[found.group(1)] = number
    mentioned = set()
    for file in sources("core", "backends", "schedulers", "checkpoint"):
        text = file.read_text()
        mentioned.update(re.findall(r'"([A-Z][A-Z0-9_]{3,})"', text))
        for found in re.finditer(
            r'\b(\w+)\(\s*(?:LogLevel::k(\w+),\s*)?"([A-Z][A-Z0-9_]{3,})",\s*(?:"|\w)', text):
            call, level, name = found.groups()
            if call in ("info", "debug", "getenv", "setenv", "FAULT_POINT",
                        "FAULT_ERROR") or level in ("Info", "Debug"):
                continue
            if call in ("error", "warning") or "_" in name:
                if name not in documented:
                    problem(file, text.count("\n", 0, found.start()) + 1,
                            f"{name} is not explained in docs/messages.md")
    for name, number in documented.items():
        if name not in mentioned:
            problem(page, number, f"{name} is in no source")


# ---- fault points --------------------------------------------------------------------------------
def check_faults():
    page = ROOT / "docs" / "testing.md"
    text = page.read_text() if page.exists() else ""
    documented = set(re.findall(r"^\|\s*`([a-z]+\.[a-z_]+)`", text, re.M))
    used = {}
    for file in sources("core", "backends", "schedulers", "checkpoint"):
        if file.name.startswith("fault_point."):
            continue
        for number, line in lines(file):
            for name in re.findall(r'FAULT_(?:POINT|ERROR)\("([^"]+)"\)', line):
                used[name] = (file, number)
    for name, (file, number) in sorted(used.items()):
        if name not in documented:
            problem(file, number, f"fault point {name} has no row in docs/testing.md")
    for name in sorted(documented - set(used)):
        problem(page, 1, f"fault point {name} is in no source")


# ---- private places ------------------------------------------------------------------------------
def check_private():
    words = re.compile(r"\.\./shared|/work/|\bfacts/[a-z]+\.md|\bDESIGN\.md|\bSTYLE\.md|/tmp/brief")
    skipped = {pathlib.Path(__file__).resolve()}
    for file in files("*", ".ci/*", "core/**/*", "backends/**/*", "schedulers/**/*", "cmake/**/*",
                      "tests/**/*", "docs/**/*",
                      "examples/**/*", "packaging/**/*", "plugins.d/*", "changelog.d/*"):
        if file in skipped or "fixtures" in file.parts and file.suffix not in (".md", ".sh"):
            continue
        for number, line in lines(file):
            found = words.search(line)
            if found and "fuzz/work" not in line:
                problem(file, number,
                        f'"{found.group(0)}" means nothing to who has only this repository')


# ---- shell ---------------------------------------------------------------------------------------
def check_shell():
    if not shutil.which("shellcheck"):
        skip("shellcheck is not installed")
    scripts = []
    for file in files("*", ".ci/*", "tests/**/*", "packaging/**/*", "docs/**/*", "cmake/*"):
        if "fixtures" in file.parts and file.name != "record.sh":
            continue
        if file.suffix == ".sh":
            scripts.append(file)
            continue
        with open(file, "rb") as opened:
            if re.match(rb"#!.*\b(ba)?sh\b", opened.readline()):
                scripts.append(file)
    # A recorder of fixtures is run by hand, once a release: its warnings count, its style does not.
    recorders = [s for s in scripts if "fixtures" in s.parts]
    for severity, chosen in (("style", [s for s in scripts if s not in recorders]),
                             ("warning", recorders)):
        if chosen:
            result = subprocess.run(["shellcheck", "-f", "gcc", "-S", severity, *map(str, chosen)],
                                    capture_output=True, text=True)
            problems.extend(result.stdout.replace(str(ROOT) + "/", "").splitlines())
    print(f"{len(scripts)} scripts")


# ---- columns -------------------------------------------------------------------------------------
COLUMNS = 100


def python_strings(file):
    """The lines of multi-line strings that are no docstrings: what they hold has its own rules."""
    inside, previous = set(), None
    with tokenize.open(file) as stream:
        for token in tokenize.generate_tokens(stream.readline):
            begins = previous in (None, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
            if token.type == tokenize.STRING and token.start[0] < token.end[0] and not begins:
                inside.update(range(token.start[0], token.end[0] + 1))
            if token.type not in (tokenize.NL, tokenize.COMMENT):
                previous = token.type
    return inside


def may_be_long(file, kind, number, line, state):
    """Whether nothing can be broken here: strings of another language, tables, links, addresses."""
    if "://" in line or "noqa" in line:
        return True
    if kind == ".py":
        return number in state
    if kind == ".md":
        return re.match(r"\s*(\||    |`[^`]*`$)", line) or "](" in line or number in state
    if kind in (".cc", ".h"):
        return number in state or re.match(r'\s*(//.*/\S{40,}|R?".*"(sv)?[,;)}]*$)', line)
    return not re.match(r"\s*# ", line)


def literal_lines(file, begin, end):
    """The lines from one that matches `begin` to the next that matches `end`."""
    inside, open_ = set(), False
    for number, line in lines(file):
        was_open = open_
        if open_ and re.search(end, line):
            open_ = False
        elif not open_ and re.search(begin, line):
            open_ = not re.search(end, line[re.search(begin, line).end():])
            was_open = True
        if was_open:
            inside.add(number)
    return inside


def check_columns():
    kinds = (".py", ".md", ".cc", ".h", ".sh")
    folders = ("backends", "cmake", "core", "docs", "examples", "packaging", "schedulers", "tests")
    every = [f for folder in folders for f in files(f"{folder}/**/*")] + list(files("*"))
    for file in every:
        head = file.read_bytes()[:20]
        shell = not file.suffix and head.startswith((b"#!/bin/", b"#!/usr/bin/env bash"))
        if file.suffix not in kinds and not shell or "docs/reference" in str(file):
            continue
        if not any(len(line) > COLUMNS for _, line in lines(file)):
            continue
        state = set()
        if file.suffix == ".py":
            state = python_strings(file)
        elif file.suffix == ".md":
            state = literal_lines(file, r"^\s*```", r"^\s*```")
        elif file.suffix in (".cc", ".h"):
            state = literal_lines(file, r'R"\w*\(', r'\)\w*"')
        for number, line in lines(file):
            if len(line) > COLUMNS and not may_be_long(file, file.suffix, number, line, state):
                problem(file, number, f"ends at column {len(line)}, not {COLUMNS} or before")


# ---- committed -----------------------------------------------------------------------------------
MOST_BYTES = 1_200_000


def check_committed():
    if not (ROOT / ".git").exists() or not shutil.which("git"):
        skip("not a clone, or no git")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True,
                            check=True).stdout
    for file in (ROOT / name for name in listed.split("\0") if name):
        if any(part.startswith("-") for part in file.relative_to(ROOT).parts):
            problem(file, 1, "begins with '-'")
        if file.is_file() and file.stat().st_size > MOST_BYTES:
            problem(file, 1, f"{file.stat().st_size} bytes; {MOST_BYTES} at most")


# ---- texts ---------------------------------------------------------------------------------------
PAGE = ROOT / "core" / "page"


def check_texts():
    table, texts = PAGE / "texts.txt", {}
    for number, line in lines(table):
        key, is_text, _ = line.partition(" = ")
        if not line or line.startswith("#"):
            continue
        if not is_text or key in texts:
            problem(table, number, "no text, or one with a key that another has")
        texts[key] = number
    used = set()
    for file in files("core/page/templates/*"):
        for number, line in lines(file):
            keys = re.findall(r"{{t\.(\w+)}}", line)
            used.update(keys)
            for key in keys:
                if key not in texts:
                    problem(file, number, f"{key} is not in {table.name}")
            # Samples of the query language are no texts.
            bare = re.sub(r"<code>.*?</code>|<!doctype html>|{{{?[^}]*}?}}|&\w+;", "", line)
            labels = re.findall(r'(?:aria-label|title|placeholder|alt)="([^"]+)"', bare)
            if re.search("[A-Za-z]", "".join([re.sub("<[^>]*>", "", bare), *labels])):
                problem(file, number, "words that are not in " + table.name)
    for file in sources("core/page"):
        text = file.read_text()
        used.update(re.findall(r'"(\w+)"', text))
        for call in re.finditer(r"\bwords\(([^;{]*)", text):
            for key in set(re.findall(r'"([a-z]\w+)"', call[1])) - texts.keys():
                problem(file, text.count("\n", 0, call.start()) + 1,
                        f"{key} is not in {table.name}")
    for key in texts.keys() - used:
        problem(table, texts[key], f"nothing uses {key}")


# ---- waits ---------------------------------------------------------------------------------------
LEAST_SECONDS = 60
UNITS = {"s": 1, "seconds": 1, "ms": 0.001, "milliseconds": 0.001, "min": 60, "minutes": 60}


def check_waits():
    """Every wait has a minute at least. What cannot be said without a time is in the servers or
    load tier."""
    slow = set(re.findall(r"\bsystem_(\w+)", "".join(
        found.group(0) for found in re.finditer(
            r"set\(SCRIPTORIUM_(SERVER|LOAD)_TESTS[^)]*\)",
            (ROOT / "cmake" / "ScriptoriumTest.cmake").read_text()))))
    limit = re.compile(r"(?:EXPECT|ASSERT)_L[TE]\(.*\bnow\(\) - \w+, "
                       r"(?:(\d+)(s|ms|min)\b|(?:std::chrono::)?(\w+)[({](\d+)[)}])")
    for file in files("tests/**/*_test.cc"):
        for number, line in lines(file):
            found = limit.search(line)
            if found:
                amount, unit = (found.group(1), found.group(2)) if found.group(1) else \
                    (found.group(4), found.group(3))
                if int(amount) * UNITS.get(unit, 0) < LEAST_SECONDS:
                    problem(file, number, "a busy machine fails this; the limit is test::kPatience")
    for file in files("tests/system/*.py", "tests/packaging/*.py"):
        for number, words in short_waits(file):
            problem(file, number, f"waits for less than {LEAST_SECONDS} s: {words}")
        if file.stem.removeprefix("test_") in slow or not file.name.startswith("test_"):
            continue
        for number, line in lines(file):
            found = re.search(r"assert .*(?:monotonic\(\) - \w+|\bseconds) < (\d+)\b", line)
            if found and int(found.group(1)) < LEAST_SECONDS:
                problem(file, number, f"a busy machine fails this; at least {LEAST_SECONDS} s")


# The functions of tests/system that wait for an event, each with the place of its limit.
WAITS = {"wait_for": 2, "wait_status": 2, "wait_acknowledged": 2, "wait_log": 1, "wait_ready": 0,
         "wait_exit": 0, "terminate": 0, "finish": 0, "command": None, "run": None}


def short_waits(file):
    """(line, words) of each wait with a limit that is written there and too short. One that is
    computed, as for a random moment, is not judged."""
    for node in ast.walk(ast.parse(file.read_text())):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if name not in WAITS:
            continue
        limits = [k.value for k in node.keywords if k.arg in ("seconds", "timeout")]
        place = WAITS[name]
        if place is not None and len(node.args) > place:
            limits.append(node.args[place])
        for limit in limits:
            if isinstance(limit, ast.Constant) and isinstance(limit.value, (int, float)) \
                    and limit.value < LEAST_SECONDS:
                yield node.lineno, f"{name}(... {limit.value})"


# ---- examples ------------------------------------------------------------------------------------
SOURCE = '\n[source.slurm]\nspool = "/var/spool/slurmctld"\nresolve = "none"\n'
SINK = '\n[sink.archive]\nplugin = "file"\nroot = "/var/lib/scriptorium/archive"\n'


def completed(text):
    """A part of a configuration with what it lacks to be whole."""
    head = "" if re.search(r"^\s*cluster\s*=", text, re.M) else 'cluster = "example"\n'
    tail = "" if re.search(r"^\s*\[source\.", text, re.M) else SOURCE
    tail += "" if re.search(r"^\s*\[sink\.", text, re.M) else SINK
    return head + text + tail


def uncommented(text):
    """Options and tables that stand behind a '#' for the reader to switch on: '#key = value' and
    '#[sink.x]'."""
    return re.sub(r"^#\s?(?=[a-z_]+\s*=\s|\[(?:serve\]|(?:source|sink|report)\.))", "", text,
                  flags=re.M)


def take(command, where, line, text, plugins_d=None):
    with tempfile.TemporaryDirectory() as folder:
        config = pathlib.Path(folder) / "scriptorium.toml"
        config.write_text(text)
        if plugins_d is not None:
            (config.parent / "plugins.d").mkdir()
            (config.parent / "plugins.d" / where.name).write_text(plugins_d)
        result = subprocess.run([command, "check", "--config", str(config)], capture_output=True,
                                text=True, timeout=60,
                                stdin=subprocess.DEVNULL)
        # The folders of an example need not exist on this machine: then single checks fail, of a
        # configuration that was read.
        if result.returncode != 0 and not re.search(r"\d+ checks? of \d+ failed", result.stderr):
            words = (result.stderr + result.stdout).replace(folder + "/", "").strip()
            problem(where, line, f"exit {result.returncode}: {words}")


def check_examples(command):
    if not pathlib.Path(command).exists():
        skip(f"{command} is not built")
    count = 0
    for file in files("README.md", "docs/**/*.md", "backends/*/README.md",
                      "schedulers/*/README.md"):
        text = file.read_text()
        for found in re.finditer(r"^```toml\n(.*?)^```", text, re.M | re.S):
            take(command, file, text.count("\n", 0, found.start()) + 1, completed(found.group(1)))
            count += 1
    for file in files("packaging/scriptorium.toml"):
        take(command, file, 1, completed(file.read_text()))
        take(command, file, 1, completed(uncommented(file.read_text())))
        count += 1
    for file in files("plugins.d/*.toml"):
        for text in (file.read_text(), uncommented(file.read_text())):
            main = 'cluster = "example"\n'
            main += "" if re.search(r"^\s*\[source\.", text, re.M) else SOURCE
            main += "" if re.search(r"^\s*\[sink\.", text, re.M) else SINK
            take(command, file, 1, main, text)
            count += 1
    print(f"{count} examples")
    if count == 0:
        problems.append("no example found: this check looks in the wrong places")


# ---- exports -------------------------------------------------------------------------------------
def check_exports(folder):
    if not shutil.which("nm"):
        skip("nm is not installed")
    plugins = sorted(pathlib.Path(folder).glob("*.so"))
    if not plugins:
        problems.append(f"{folder}: no plugins")
    for file in plugins:
        text = subprocess.run(["nm", "-D", "--defined-only", "-P", str(file)], capture_output=True,
                              text=True, check=True).stdout
        names = sorted(line.split()[0] for line in text.splitlines() if line
                       and not line.split()[0].startswith("__odr_asan"))
        if names != ["scriptorium_plugin"]:
            problems.append(
                f"{file.name}: exports {names[:5]}, and must export scriptorium_plugin only")


def main():
    checks = {name[len("check_"):]: function for name, function in globals().items()
              if name.startswith("check_")}
    if len(sys.argv) < 2 or sys.argv[1] not in checks:
        print(__doc__)
        sys.exit(64)
    checks[sys.argv[1]](*sys.argv[2:])
    for text in problems:
        print(text)
    if problems:
        print(f"{len(problems)} problems")
        sys.exit(1)


main()
