"""What a site gets: packages that install, work as they are, keep what they hold over an upgrade,
and leave nothing."""

import concurrent.futures
import os
import re
import subprocess

import harness
from conftest import ROOT, need, run

OURS = ("scriptorium", "scriptorium-elasticsearch", "scriptorium-kafka", "scriptorium-web",
        "scriptorium-checkpoint")
JOBS = (11, 12, 4711)


def built(packages, name):
    return bool(list(packages.glob(f"{name}_*.deb")))


def ours(packages):
    return [*OURS, *(["scriptorium-usage"] if built(packages, "scriptorium-usage") else [])]


def make_spool(root, jobs=JOBS):
    """A Slurm controller's spool, written as slurmctld does; {job: (script, environment)}."""
    spool = harness.Spool(root.file("/var/spool/slurmctld"))
    return {job: spool.write(job) for job in jobs}


def archived(root, jobs):
    """What the archive holds of these jobs: {job: (script, environment)}; a second copy of a job
    fails."""
    found = {}
    for job in jobs:
        scripts = list(root.file("/var/lib/scriptorium/archive").rglob(f"{job}-*.sh")) + list(
            root.file("/var/lib/scriptorium/archive").rglob(f"{job}.sh"))
        assert len(scripts) == 1, f"job {job}: {scripts}"
        found[job] = (scripts[0].read_bytes(), scripts[0].with_suffix(".env").read_bytes())
    return found


def edit_config(root, *replacements):
    file = root.file("/etc/scriptorium/scriptorium.toml")
    text = file.read_text()
    for old, new in replacements:
        assert old in text, old
        text = text.replace(old, new)
    file.write_text(text)


# ---- what the packages are -----------------------------------------------------------------------
def test_lintian_and_rpmlint_find_no_error(packages):
    need("lintian", "rpmlint")
    rpms = sorted(packages.glob("*.rpm"))
    assert rpms
    commands = (["lintian", "--allow-root", "--tag-display-limit", "0", "--fail-on", "error",
                 *packages.glob("*.changes")],
                ["rpmlint", "-c", ROOT / "packaging" / "rpm" / "rpmlint.toml", *rpms])
    with concurrent.futures.ThreadPoolExecutor() as pool:
        debian, rpm = pool.map(lambda command: subprocess.run(command, capture_output=True,
                                                              text=True, timeout=600), commands)
    assert debian.returncode == 0, debian.stdout + debian.stderr
    assert not re.search(r"^E:", debian.stdout, re.M), debian.stdout
    assert not re.search(r": E: ", rpm.stdout), rpm.stdout
    assert f"{len(rpms)} packages and 0 specfiles checked; 0 errors" in rpm.stdout, rpm.stdout


def test_both_sorts_of_packages_hold_the_same_files(packages):
    need("dpkg-deb", "rpm")

    def normal(path):
        path = re.sub(r"\.gz$", "", path)
        path = path.replace("/usr/share/zsh/vendor-completions/", "/usr/share/zsh/site-functions/")
        path = path.replace("/usr/share/doc/scriptorium-dev/", "/usr/share/doc/scriptorium-devel/")
        return re.sub(r"^/lib/systemd", "/usr/lib/systemd", path)

    def deb(name):
        (file,) = packages.glob(f"{name}_*.deb")
        lines = run("dpkg-deb", "-c", file).stdout.splitlines()
        return {normal(line.split()[5].lstrip(".")) for line in lines if line[0] == "-"}

    def rpm(name):
        (file,) = (f for f in packages.glob("*.rpm") if run("rpm", "-qp", "--qf", "%{NAME}",
                                                            f).stdout == name)
        lines = run("rpm", "-qp", "--qf", "[%{FILEMODES:perms} %{FILENAMES}\n]",
                    file).stdout.splitlines()
        return {normal(line.split(None, 1)[1]) for line in lines if line[0] == "-"}

    for name in (*ours(packages), "scriptorium-dev"):
        # Debian's own: its changelog and copyright; RPM's own: the user, which Debian's adduser
        # makes.
        own = {f"/usr/share/doc/{name}/{file}" for file in ("changelog", "changelog.Debian",
                                                            "copyright", "CHANGELOG.md")}
        own |= {f"/usr/share/doc/scriptorium-devel/{file}"
                for file in ("changelog", "changelog.Debian", "copyright")}
        own |= {f"/usr/lib/sysusers.d/{name}.conf"}
        assert deb(name) - own == rpm(name.replace("-dev", "-devel")) - own


def test_the_web_servers_configurations_can_be_copied_from_where_the_page_names_them(packages):
    need("dpkg-deb", "rpm")
    (deb,) = packages.glob("scriptorium-web_*.deb")
    (rpm,) = packages.glob("scriptorium-web-*.rpm")
    in_deb = {line.split()[5].lstrip(".")
              for line in run("dpkg-deb", "-c", deb).stdout.splitlines()}
    in_rpm = set(run("rpm", "-qpl", rpm).stdout.split())
    shipped = {f"/usr/share/doc/scriptorium-web/{file.name}"
               for file in (ROOT / "packaging" / "web").iterdir()}
    assert len(shipped) == 3 and shipped <= in_deb and shipped <= in_rpm, (shipped, in_deb, in_rpm)


def test_a_configuration_that_was_edited_is_the_sites(packages):
    need("dpkg-deb", "rpm")
    every = set()
    for name in ours(packages):
        (file,) = packages.glob(f"{name}_*.deb")
        marked = set(subprocess.run(["dpkg-deb", "-I", file, "conffiles"], capture_output=True,
                                    text=True).stdout.split())
        files = {line.split()[5].lstrip(".")
                 for line in run("dpkg-deb", "-c", file).stdout.splitlines() if line[0] == "-"}
        assert marked == {f for f in files if f.startswith("/etc/")}, name
        every |= marked
    in_rpm = set()
    for file in packages.glob("*.rpm"):
        for line in run("rpm", "-qp", "--qf", "[%{FILEFLAGS:fflags} %{FILENAMES}\n]",
                        file).stdout.splitlines():
            flags, _, path = line.partition(" ")
            if path.startswith("/etc/") and path.endswith(".toml"):
                assert flags == "cn", f"{path} is no %config(noreplace): {flags}"
                in_rpm.add(path)
    assert in_rpm == every and "/etc/scriptorium/scriptorium.toml" in every
    # and every plugin that takes options and is no toy brings one
    usage = ("30-usage",) if built(packages, "scriptorium-usage") else ()
    for name in ("10-slurm", "20-torque", "50-file", "52-catalog", "55-elasticsearch", "60-kafka",
                 *usage):
        assert f"/etc/scriptorium/plugins.d/{name}.toml" in every


def test_an_installation_from_source_finds_itself_below_its_prefix_and_leaves_etc_alone(packages,
                                                                                        tmp_path):
    run("cmake", "--install", ROOT / "build" / "release",
        env={**os.environ, "DESTDIR": str(tmp_path)})
    assert [folder.name for folder in tmp_path.iterdir()] == ["usr"]
    local = tmp_path / "usr" / "local"
    unit = (local / "lib/systemd/system/scriptorium.service").read_text()
    assert "ExecStart=/usr/local/bin/scriptorium run\n" in unit
    assert (local / "share/scriptorium/config/scriptorium.toml").exists()
    listed = run(local / "bin" / "scriptorium", "plugins", "--config",
                 local / "share/scriptorium/config/scriptorium.toml").stdout
    for name in ("slurm", "file", "kafka"):
        assert re.search(rf"^{name}\b", listed, re.M), listed


# ---- in a clean Debian 12 ------------------------------------------------------------------------
def test_as_installed_it_passes_its_check_and_archives_a_spool(packages, clean_root):
    root = clean_root
    root.install(packages, *ours(packages))
    jobs = make_spool(root)
    # As it was installed, only the cluster's name is wrong; who has given that needs nothing more.
    check = root.try_run("scriptorium", "check")
    failed = re.findall(r"^ *failed +(\S+):", check.stdout, re.M)
    assert check.returncode == 69 and failed == ["cluster"], check.stdout + check.stderr
    edit_config(root, ('cluster = "change-me"', 'cluster = "the-sites-own"'))
    check = root.run("scriptorium", "check")
    assert "configuration is valid: 1 source, 2 sinks" in check and not re.search("^failed", check,
                                                                                  re.M), check
    assert "everything else runs as scriptorium, without capabilities" in check, check
    # The plugins that are packages of their own are found, and off.
    listed = root.run("scriptorium", "plugins")
    for name in ("elasticsearch", "kafka", "file", "slurm", "torque"):
        assert re.search(rf"^{name}\b", listed, re.M), listed
    root.run("scriptorium", "run", "--once")
    assert archived(root, JOBS) == jobs
    # The catalog is on as installed, and finds them.
    found = root.run("scriptorium", "search", "--ids", "--limit", "100")
    assert len(found.split()) == len(jobs), found
    own = {path.stat().st_uid for path in root.file("/var/lib/scriptorium").rglob("*")}
    passwd = {line.split(":")[0]: line.split(":")
              for line in root.file("/etc/passwd").read_text().splitlines()}
    assert own == {int(passwd["scriptorium"][2])} and passwd["scriptorium"][6] \
        == "/usr/sbin/nologin"
    assert root.file("/var/lib/scriptorium").stat().st_mode & 0o777 == 0o750
    # The units are installed and not enabled.
    for unit in ("scriptorium.service", "scriptorium-web.service", "scriptorium-web.socket",
                 "scriptorium-page.socket"):
        assert root.file(f"/lib/systemd/system/{unit}").exists()
    assert not list(root.file("/etc/systemd/system").rglob("scriptorium*"))
    assert passwd["scriptorium-web"][6] == "/usr/sbin/nologin"
    # What the shells and man(1) read.
    for file in ("man/man8/scriptorium.8.gz", "bash-completion/completions/scriptorium",
                 "zsh/vendor-completions/_scriptorium",
                 "fish/vendor_completions.d/scriptorium.fish"):
        assert root.file(f"/usr/share/{file}").stat().st_size > 500, file


def test_the_checkpoint_service_needs_no_other_package_and_says_what_a_node_lacks(packages,
                                                                                  clean_root):
    root = clean_root
    before = root.everything()
    root.install(packages, "scriptorium-checkpoint")
    assert not root.file("/usr/bin/scriptorium").exists()
    check = root.try_run("scriptorium-checkpointd", "check")
    assert check.returncode == 69 and "missing  criu" in check.stdout and not check.stderr, check
    # What the configuration shows as its defaults can be used.
    config = root.file("/etc/scriptorium/checkpoint.toml")
    shown, count = re.subn(r"(?m)^# (\w+ = )", r"\1", config.read_text())
    assert count == 9
    root.file("/root/shown.toml").write_text(shown)
    again = root.try_run("scriptorium-checkpointd", "--config", "/root/shown.toml", "check")
    assert (again.returncode, again.stdout, again.stderr) == (69, check.stdout, "")
    root.file("/root/shown.toml").unlink()
    assert root.file("/lib/systemd/system/scriptorium-checkpointd.service").exists()
    assert root.file("/usr/share/man/man8/scriptorium-checkpointd.8.gz").exists()
    assert root.file("/usr/share/man/man1/scriptorium-run.1.gz").exists()
    assert root.file("/usr/share/man/man1/scriptorium-migrate.1.gz").exists()
    assert root.file("/usr/share/scriptorium/checkpoint/scriptorium_app.h").exists()
    assert root.file("/usr/share/scriptorium/checkpoint/slurm/two-partitions.conf").exists()
    assert root.run("scriptorium-run", "sh", "-c", "exit 0").returncode == 0
    migrate = root.try_run("scriptorium-migrate", "--drain-node", "n1")
    assert migrate.returncode == 69 and "scontrol is not installed" in migrate.stderr, migrate
    assert not list(root.file("/etc/systemd/system").rglob("scriptorium*"))
    root.run("apt-get", "purge", "-y", "scriptorium-checkpoint")
    left = {path for path in root.everything() - before if "scriptorium" in str(path)}
    assert not left, left


def test_an_upgrade_keeps_the_journal_and_the_configuration_and_a_purge_leaves_nothing(
        packages, packages_before, clean_root):
    root = clean_root
    before_us = root.everything()
    root.install(packages_before, *(name for name in OURS if built(packages_before, name)))
    first = root.run("dpkg-query", "-W", "-f", "${Version}", "scriptorium")
    edit_config(root, ('cluster = "change-me"', 'cluster = "the-sites-own"'),
                ("[source.slurm]\n", '[source.slurm]\nresolve = "none"\n'))
    # The destination takes nothing, so the jobs stay in the journal; then the scheduler has purged
    # them.
    jobs = make_spool(root)
    archive = root.file("/var/lib/scriptorium/archive")
    root.run("install", "-d", "-o", "scriptorium", "-g", "scriptorium", "-m", "0750",
             "/var/lib/scriptorium/archive")
    (archive / "unverified").write_text("a file where the folder of all these jobs would be\n")
    waiting = root.try_run("scriptorium", "run", "--once")
    assert waiting.returncode != 0 and "captured=3" in waiting.stderr and "settled=no" \
        in waiting.stderr, waiting
    spool = harness.Spool(root.file("/var/spool/slurmctld"))
    for job in JOBS:
        spool.remove(job)

    root.install(packages, *ours(packages))
    second = root.run("dpkg-query", "-W", "-f", "${Version}", "scriptorium")
    root.run("dpkg", "--compare-versions", first, "lt", second)
    assert 'cluster = "the-sites-own"' in root.file("/etc/scriptorium/scriptorium.toml").read_text()
    (archive / "unverified").unlink()
    root.run("scriptorium", "run", "--once")
    assert archived(root, JOBS) == jobs, "the new version delivers what the old one had accepted"
    # and captures on, without taking anything twice
    more = make_spool(root, (13,))
    root.run("scriptorium", "run", "--once")
    assert archived(root, (*JOBS, 13)) == {**jobs, **more}

    # Removal keeps what was captured and what the site has said.
    root.run("apt-get", "remove", "-y", "scriptorium")
    assert not root.file("/usr/bin/scriptorium").exists()
    assert archived(root, (*JOBS, 13)) == {**jobs, **more}
    assert root.file("/var/lib/scriptorium/journal.db").exists()
    assert root.file("/etc/scriptorium/scriptorium.toml").exists()

    root.run("apt-get", "purge", "-y", *ours(packages))
    root.run("apt-get", "autoremove", "--purge", "-y")
    left = {path for path in root.everything() - before_us
            if not path.startswith("var/spool/slurmctld")}
    assert not left, sorted(left)
    for file in ("/etc/passwd", "/etc/group", "/etc/shadow"):
        assert "scriptorium" not in root.file(file).read_text(), file


# ---- plugins of others ---------------------------------------------------------------------------
EXAMPLE_CONFIG = """
cluster = "example"
state_dir = "/var/lib/example"
plugin_dirs = ["/usr/lib/scriptorium/plugins", "/opt/plugins"]
[source.inbox]
spool = "/srv/inbox"
[sink.copy]
plugin = "jsonfolder"
folder = "/srv/events"
"""


def test_the_example_builds_outside_the_tree_and_a_wrong_stamp_is_refused_with_words(packages,
                                                                                     compiler_root):
    root = compiler_root
    root.install(packages, "scriptorium", "scriptorium-dev")

    def build(*options):
        root.run("cmake", "-S", "/usr/share/doc/scriptorium-dev/examples/plugins", "-B",
                 "/tmp/build", "--fresh", *options)
        root.run("cmake", "--build", "/tmp/build")
        for name in ("inbox", "jsonfolder"):
            root.run("install", "-D", "-m", "644", f"/tmp/build/{name}.so",
                     f"/opt/plugins/{name}.so")

    build()
    for folder in ("/srv/inbox", "/srv/events"):
        root.file(folder).mkdir(parents=True)
    root.file("/srv/inbox/4711.job").write_bytes(b"#!/bin/sh\necho \xff\n")
    root.file("/etc/example.toml").write_text(EXAMPLE_CONFIG)
    assert "configuration is valid" in root.run("scriptorium", "check", "--config",
                                               "/etc/example.toml")
    assert "The folder that jobs are put into" in root.run("scriptorium", "plugins", "inbox",
                                                           "--config", "/etc/example.toml")
    root.run("scriptorium", "run", "--once", "--config", "/etc/example.toml")
    (event,) = root.file("/srv/events").glob("*.json")
    text = event.read_text()
    assert '"id":"4711"' in text and '"scheduler":"inbox"' in text and '"encoding":"base64"' \
        in text, text

    # The headers of another version: the stamp that they bring is another one.
    installed = root.file("/usr/lib/cmake/Scriptorium/ScriptoriumConfig.cmake")
    stamp = re.search(r'set\(Scriptorium_DAEMON_STAMP "([^"]+)"\)', installed.read_text()).group(1)
    other = re.sub(r"[0-9a-f]{16}$", "0123456789abcdef", stamp)
    assert other != stamp
    installed.write_text(installed.read_text().replace(stamp.rpartition("/")[2],
                                                       "0123456789abcdef"))
    build()
    refused = root.try_run("scriptorium", "check", "--config", "/etc/example.toml")
    assert refused.returncode == harness.EX_CONFIG, refused
    for name in ("inbox", "jsonfolder"):
        assert f"/opt/plugins/{name}.so: found build stamp {other}; needed build stamp {stamp}; " \
               f"rebuild the plugin" in refused.stderr, refused


def test_a_compiler_that_the_daemon_was_not_built_with_is_named_at_configure_time(packages,
                                                                                  tmp_path):
    need("dpkg-deb", "clang++-19", "cmake")
    for name in ("scriptorium", "scriptorium-dev"):
        (file,) = packages.glob(f"{name}_*.deb")
        run("dpkg-deb", "-x", file, tmp_path)
    source = tmp_path / "usr/share/doc/scriptorium-dev/examples/plugins"
    result = run("cmake", "-S", source, "-B", tmp_path / "build",
                 f"-DCMAKE_PREFIX_PATH={tmp_path}/usr",
                 "-DCMAKE_CXX_COMPILER=clang++-19")
    warning = " ".join(result.stderr.split())
    assert "Scriptorium was built as gnu-" in warning and "the daemon will refuse the plugin" \
        in warning, result.stderr
    run("cmake", "--build", tmp_path / "build")
    config = tmp_path / "config.toml"
    folder = tmp_path / "plugins"
    folder.mkdir(mode=0o755)
    for name in ("inbox", "jsonfolder"):
        (folder / f"{name}.so").write_bytes((tmp_path / "build" / f"{name}.so").read_bytes())
    config.write_text(
        f'cluster = "x"\nplugin_dirs = ["{folder}"]\n[source.inbox]\nspool = "/nowhere"\n'
                      '[sink.copy]\nplugin = "jsonfolder"\nfolder = "/nowhere"\n')
    refused = subprocess.run([tmp_path / "usr/bin/scriptorium", "check", "--config", config],
                             capture_output=True, text=True, timeout=60)
    assert refused.returncode == harness.EX_CONFIG
    assert "found build stamp clang-" in refused.stderr and "with the same compiler and headers" \
        in refused.stderr, refused.stderr
