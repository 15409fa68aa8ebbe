"""Real Kafka brokers for the system tests: starting, breaking and reading them, and what a message
must hold.

A test that cannot have a broker (no Java, no jars and no network, no kcat) is skipped with the
reason; see needs_broker().
"""

import base64
import collections
import concurrent.futures
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid

import pytest

import harness

SERVERS = harness.ROOT / "tests" / "support" / "servers"
ADMIN = harness.BUILD / "tests" / "kafka-admin"
PLUGIN = harness.BUILD / "plugins" / "kafka.so"
SCHEMAS = harness.ROOT / "docs" / "schema"
VERSIONS = {"3.9": "kafka3", "4.1": "kafka4"}
# What anonymous clients (the plaintext port) may do: all. SASL and TLS users: what they were given.
ACLS = "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer " \
       "super.users=User:ANONYMOUS"
NO_AUTO_TOPICS = "auto.create.topics.enable=false"


# ---- what is there -------------------------------------------------------------------------------
def needs_broker(version="3.9"):
    """The folder of that Kafka's jars, or a skipped test that names what is missing."""
    for thing, remedy in ((PLUGIN, "this build has no Kafka sink"),
                          (ADMIN, "build the target kafka_admin")):
        if not thing.exists():
            pytest.skip(f"no {thing.name}: {remedy}")
    for command, package in (("java", "openjdk-17-jre-headless"), ("kcat", "kcat"),
                             ("openssl", "openssl")):
        if not shutil.which(command):
            pytest.skip(f"no {command}; apt-get install {package}")
    result = subprocess.run([str(SERVERS / "fetch"), VERSIONS[version]], capture_output=True,
                            text=True, timeout=600)
    if result.returncode == 77:
        pytest.skip(f"Kafka {version}: {result.stderr.strip()}")
    assert result.returncode == 0, f"fetch {VERSIONS[version]}: {result.stderr}"
    return pathlib.Path(result.stdout.strip())


def librdkafka_version():
    """(2, 0, 2): of the library that the daemon's plugin will load here, as kcat says it."""
    text = subprocess.run(["kcat", "-V"], capture_output=True, text=True).stdout
    return tuple(int(n) for n in re.search(r"librdkafka (\d+)\.(\d+)\.(\d+)", text).groups())


PORTS_GIVEN = set()


def free_ports(count):
    """The first of `count` ports in a row that are free, below the range of outgoing connections.
    Never the same twice: several brokers get theirs before the first of them starts."""
    chance = random.SystemRandom()
    for _ in range(200):
        first = chance.randrange(14000, 31000, 40)
        if first in PORTS_GIVEN:
            continue
        sockets = []
        try:
            for port in range(first, first + count):
                s = socket.socket()
                sockets.append(s)
                s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                s.bind(("127.0.0.1", port))
            PORTS_GIVEN.add(first)
            return first
        except OSError:
            continue
        finally:
            for s in sockets:
                s.close()
    raise AssertionError("no free ports")


def make_certificates(directory):
    subprocess.run([str(SERVERS / "tls" / "make-certs.sh"), str(directory)], check=True,
                   capture_output=True)
    for file in pathlib.Path(directory).iterdir():
        file.chmod(0o600)
    return pathlib.Path(directory)


# ---- brokers -------------------------------------------------------------------------------------
class Broker:
    """One real broker in a folder; its data outlives kill() and start()."""

    def __init__(self, directory, version="3.9", certificates=None, extra="", properties=None,
                 java_options=""):
        self.directory = pathlib.Path(directory)
        self.version = version
        self.libraries = needs_broker(version)
        self.certificates = certificates
        self.extra = extra
        self.properties = properties
        self.java_options = java_options
        self.port = free_ports(4)
        self.frozen = False
        self.guard = None

    @property
    def bootstrap(self):
        return f"127.0.0.1:{self.port}"

    @property
    def sasl(self):
        return f"127.0.0.1:{self.port + 2}"

    @property
    def mtls(self):
        return f"127.0.0.1:{self.port + 3}"

    def environment(self):
        env = {**os.environ, "LIB": str(self.libraries), "EXTRA": self.extra,
               "JAVA_OPTIONS": self.java_options}
        if self.properties:
            env["PROPERTIES"] = str(self.properties)
        return env

    def start_command(self):
        return [str(SERVERS / "kafka" / "kafka-node.sh"), str(self.directory), str(self.port),
                *([str(self.certificates)] if self.certificates else [])]

    def pid_files(self):
        return [self.directory / "pid"]

    def start(self):
        result = subprocess.run(self.start_command(), capture_output=True, text=True, timeout=300,
                                env=self.environment())
        assert result.returncode == 0, f"the broker did not start: {result.stderr[-3000:]}"
        self.guard_it()
        return self

    def guard_it(self):
        """Ends the brokers when this process ends in whatever way: they would outlive a killed
        pytest."""
        if self.guard is None:
            files = " ".join(f"'{f}'" for f in self.pid_files())
            self.guard = subprocess.Popen(["sh", "-c",
                                           f'read -r _; for f in {files}; do kill -9 '
                                           f'"$(cat "$f")"; done'],
                                          stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                          stderr=subprocess.DEVNULL)

    def pids(self):
        return [int(file.read_text()) for file in self.pid_files() if file.exists()]

    def signal(self, number):
        for pid in self.pids():
            os.kill(pid, number)

    def kill(self):
        """kill -9, and wait until it is gone."""
        for pid in self.pids():
            kill_and_wait(pid)

    def freeze(self):
        """A hung broker: connected, and silent."""
        self.signal(signal.SIGSTOP)
        self.frozen = True

    def thaw(self):
        if self.frozen:
            self.signal(signal.SIGCONT)
            self.frozen = False

    def remove(self):
        for pid in self.pids():
            try:
                kill_and_wait(pid)
            except ProcessLookupError:
                pass
        if self.guard is not None:
            self.guard.stdin.close()
            self.guard.wait()
        shutil.rmtree(self.directory, ignore_errors=True)

    # ---- topics, rights --------------------------------------------------------------------------
    def admin(self, *arguments):
        result = subprocess.run([str(ADMIN), self.bootstrap, *arguments], capture_output=True,
                                text=True, timeout=120)
        assert result.returncode == 0, f"kafka-admin {' '.join(arguments)}: {result.stderr}"
        return result.stdout.strip()

    def create(self, topic, partitions=1, replicas="", **settings):
        """A topic that exists on the broker when this returns; settings with "_" for ".":
        max_message_bytes=65536."""
        self.admin("create", topic, f"partitions={partitions}",
                   *([f"replicas={replicas}"] if replicas else []),
                   *(f"{key.replace('_', '.')}={value}" for key, value in settings.items()))
        harness.wait_for(lambda: int(self.admin("leader", topic)) >= 0, f"{topic} has a leader")
        return topic

    def allow(self, user, topic):
        self.admin("allow", user, topic, "write", "describe")

    def revoke(self, user, topic):
        self.admin("revoke", user, topic, "write", "describe")

    # ---- reading ---------------------------------------------------------------------------------
    def read(self, topic):
        """Every message of a topic, in the order of its partitions."""
        result = subprocess.run(["kcat", "-C", "-b", self.bootstrap, "-t", topic, "-o",
                                 "beginning", "-e", "-q", "-J",
                                 "-X", "log_level=0"], capture_output=True, timeout=300)
        assert result.returncode == 0, f"kcat: {result.stderr.decode()[-2000:]}"
        return [Message(json.loads(line)) for line in result.stdout.splitlines()]

    def count(self, topic):
        """How many messages a topic holds, by its offsets; cheap."""
        ends = [word for p in range(self.partitions(topic)) for word in ("-t", f"{topic}:{p}:-1")]
        result = subprocess.run(["kcat", "-Q", "-b", self.bootstrap, *ends, "-X", "log_level=0"],
                                capture_output=True, text=True, timeout=60)
        return sum(int(n) for n in re.findall(r"offset (\d+)$", result.stdout, re.M))

    def partitions(self, topic):
        result = subprocess.run(["kcat", "-L", "-J", "-b", self.bootstrap, "-t", topic, "-X",
                                 "log_level=0"], capture_output=True,
                                text=True, timeout=60)
        return len(json.loads(result.stdout)["topics"][0]["partitions"])


class Cluster(Broker):
    """Three brokers; node 1 is the only controller."""

    def __init__(self, directory, version="3.9"):
        super().__init__(directory, version)
        self.port = free_ports(24)

    @property
    def bootstrap(self):
        return ",".join(f"127.0.0.1:{self.port + 10 * n}" for n in range(3))

    def start_command(self):
        return [str(SERVERS / "kafka" / "kafka-cluster.sh"), str(self.directory), str(self.port)]

    def pid_files(self):
        return [self.directory / str(node) / "pid" for node in (1, 2, 3)]

    def kill_nodes(self, *nodes):
        for node in nodes:
            kill_and_wait(int((self.directory / str(node) / "pid").read_text()))

    def start_nodes(self, *nodes):
        result = subprocess.run(self.start_command(), capture_output=True, text=True, timeout=300,
                                env={**self.environment(), "NODES": " ".join(map(str, nodes))})
        assert result.returncode == 0, f"nodes {nodes} did not start: {result.stderr[-3000:]}"


def kill_and_wait(pid):
    os.kill(pid, signal.SIGKILL)
    harness.wait_for(lambda: not harness._alive(pid), f"process {pid} ends")


def brokers_directory(request):
    directory = pathlib.Path(tempfile.mkdtemp(prefix="kafka-lab-", dir=harness.test_directory()))
    directory.chmod(0o755)
    return directory


def running(directory, broker):
    """For fixtures: the broker while it is used, and nothing of it afterwards."""
    try:
        yield broker.start()
    finally:
        broker.thaw()
        broker.remove()
        shutil.rmtree(directory, ignore_errors=True)


def secured_brokers(certificates):
    """For a fixture: {version: broker}, one of each, all running, with logins, rights and no topic
    that nobody has made."""
    directory = brokers_directory(None)
    brokers = {}
    try:
        for version in VERSIONS:
            brokers[version] = Broker(directory / version, version, certificates,
                                      extra=f"{ACLS} {NO_AUTO_TOPICS}")
        with concurrent.futures.ThreadPoolExecutor() as pool:
            list(pool.map(Broker.start, brokers.values()))
        yield brokers
    finally:
        for broker in brokers.values():
            broker.remove()
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="module", params=VERSIONS)
def broker(request, secured_brokers):
    return secured_brokers[request.param]


@pytest.fixture
def new_topic(broker):
    """new_topic("jobs", partitions=3, ...): a topic of the module's broker, of a name of its
    own."""
    def make(name="jobs", **options):
        return broker.create(f"{name}-{uuid.uuid4().hex[:8]}", **options)
    return make


# ---- the daemon's side ---------------------------------------------------------------------------
def config_text(work, sources=None, sinks=None, **core):
    """harness.config_text, and tables in a sink's options: {"kafka": {"librdkafka": {"linger.ms":
    5}}}."""
    flat = {name: options if options is None
            else {k: v for k, v in options.items() if not isinstance(v, dict)}
            for name, options in (sinks or {}).items()}
    text = harness.config_text(work, sources, flat, **core)
    for name, options in (sinks or {}).items():
        for key, table in (options or {}).items():
            if isinstance(table, dict):
                text += f"\n[sink.{name}.{key}]\n" \
        + "".join(f"{json.dumps(k)} = {harness.toml(v)}\n" for k, v in table.items())
    return text


def kafka_sink(broker, topic, **options):
    return {"plugin": "kafka", "brokers": broker.bootstrap, "topic": topic, "retry_max_ms": 500,
            **options}


def secret_file(directory, name, text):
    file = pathlib.Path(directory) / name
    file.write_text(text + "\n")
    file.chmod(0o600)
    return str(file)


def tls(certificates, **options):
    return {"tls_ca_file": str(certificates / "ca.pem"), **options}


def sasl(work, certificates, broker, topic, mechanism="PLAIN", user="scriptorium", password=None,
         **options):
    password = password or ("plain-secret" if mechanism == "PLAIN" else "scram-secret")
    name = f"password-{uuid.uuid4().hex[:8]}"
    return kafka_sink(broker, topic, **{"brokers": broker.sasl, **tls(certificates),
                                        "sasl_mechanism": mechanism, "sasl_username": user,
                                        "sasl_password_file": secret_file(work, name, password),
                                        **options})


def mtls(certificates, broker, topic, client=None, **options):
    client = client or certificates
    return kafka_sink(broker, topic, **{"brokers": broker.mtls, **tls(certificates),
                                        "tls_certificate_file": str(client / "client.pem"),
                                        "tls_key_file": str(client / "client.key"), **options})


def unsecured_token(user, seconds=3600):
    """A JWT without a signature, as Kafka's own OAUTHBEARER login for tests makes and takes it."""
    def part(claims):
        return base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode()
    now = int(time.time())
    return f"{part({'alg': 'none'})}.{part({'sub': user, 'iat': now, 'exp': now + seconds})}."


@pytest.fixture
def make_kafka_daemon(work, spool):  # the spool must be there before a daemon starts
    """make_kafka_daemon({"kafka": kafka_sink(broker, topic)}, archive=False, ...): a Daemon, not
    yet started."""
    daemons = []

    def make(sinks, archive=True, sources=None, environment=None, **core):
        sinks = dict(sinks) if archive else {"archive": None, **sinks}
        daemon = harness.Daemon(work, config_text(work, sources, sinks, **core), environment)
        daemons.append(daemon)
        return daemon
    yield make
    for daemon in daemons:
        daemon.cleanup()


def cpu_by_thread(pid):
    """{"name/id": processor seconds} of a process's threads."""
    busy = {}
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        try:
            name, _, rest = (task / "stat").read_text().partition(" (")[2].rpartition(")")
        except OSError:
            continue
        fields = rest.split()
        busy[f"{name}/{task.name}"] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return busy


# For daemons whose processor time is measured: fanotify hears of every file that is closed on the
# file system of the spool, and so of what other tests do there at the same time.
OWN_EVENTS_ONLY = {"slurm": {"capture": "inotify"}}


def assert_quiet(daemon, why, seconds):
    """At most a twentieth of a core for so many seconds (processor time, so a busy machine does not
    matter). Returns the share."""
    start, before = time.monotonic(), cpu_by_thread(daemon.process.pid)
    harness.wait_for(lambda: time.monotonic() - start >= seconds, "the time is over", seconds + 30,
                     step=0.25)
    passed, after = time.monotonic() - start, cpu_by_thread(daemon.process.pid)
    shares = {name: (busy - before.get(name, 0)) / passed for name, busy in after.items()}
    share = sum(shares.values())
    most = ", ".join(f"{name} {part:.1%}" for name, part in sorted(shares.items(),
                                                                   key=lambda x: -x[1])[:5])
    assert share <= (0.5 if harness.SANITIZED
                     else 0.05), f"{share:.1%} of a core while {why}: {most}"
    return share


# ---- messages ------------------------------------------------------------------------------------
class Message:
    """One message as a consumer sees it."""

    def __init__(self, envelope):
        self.partition = envelope["partition"]
        self.offset = envelope["offset"]
        self.timestamp_ms = envelope["ts"]
        self.key = envelope["key"]
        self.value = envelope["payload"]
        names = envelope.get("headers", [])
        self.headers = dict(zip(names[::2], names[1::2]))
        assert len(self.headers) == len(names) // 2, f"a header twice: {names[::2]}"

    def json(self):
        return json.loads(self.value)


def script_bytes(event):
    script = event["script"]
    return base64.b64decode(script["text"]) if script["encoding"] == "base64" \
        else script["text"].encode()


def murmur2_partition(key, partitions):
    """The partition of a key as Java's producers choose it
    (org.apache.kafka.common.utils.Utils.murmur2)."""
    data, m, mask = key.encode(), 0x5BD1E995, 0xFFFFFFFF
    h = (0x9747B28C ^ len(data)) & mask
    for i in range(0, len(data) - 3, 4):
        k = int.from_bytes(data[i:i + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        h = (h * m & mask) ^ k
    tail = data[len(data) & ~3:]
    if tail:
        h = (h ^ int.from_bytes(tail, "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return ((h ^ h >> 15) & 0x7FFFFFFF) % partitions


def validator(name):
    """A validator of docs/schema/NAME, which may refer to its neighbours."""
    jsonschema = pytest.importorskip("jsonschema",
                                     reason="python3-jsonschema is not installed: no message was "
                                            "held against its schema")
    store = {}
    for file in SCHEMAS.glob("*.schema.json"):
        schema = json.loads(file.read_text())
        store[schema["$id"]] = schema
    schema = json.loads((SCHEMAS / name).read_text())
    kind = jsonschema.validators.validator_for(schema)
    kind.check_schema(schema)
    return kind(schema, resolver=jsonschema.RefResolver(schema["$id"], schema, store=store))


def assert_valid(schema, document, who):
    errors = [f"{'/'.join(map(str, e.path))}: {e.message[:200]}"
              for e in schema.iter_errors(document)]
    assert not errors, (who, errors)


def compare(messages, manifest, duplicates=0):
    """Fails with numbers unless the messages (format "event") hold exactly the manifest's jobs,
    byte for byte, none missing, and at most `duplicates` of them twice. Returns how many were."""
    events = [m.json() for m in messages]
    ids = collections.Counter(e["id"] for e in events)
    have = {e["job"]["id"]: e for e in events}
    lost = sorted(set(manifest) - set(have))
    extra = sorted(set(have) - set(manifest))
    assert not lost, f"{len(lost)} of {len(manifest)} jobs are not at the consumer, such " \
                     f"as {lost[:5]}"
    assert not extra, f"{len(extra)} jobs that nobody submitted, such as {extra[:5]}"
    assert len(ids) == len(manifest), f"{len(ids)} distinct event ids for {len(manifest)} jobs"
    wrong = []
    for event in events:
        script, environment = manifest[event["job"]["id"]]
        files = {f["name"]: f["sha256"] for f in event["files"]}
        if harness.sha256(script_bytes(event)) != script or event["script"]["sha256"] != script:
            wrong.append(f"script of {event['job']['id']}")
        if files["environment"] != environment:
            wrong.append(f"environment of {event['job']['id']}")
    assert not wrong, f"{len(wrong)} differ, such as {wrong[:5]}"
    twice = sum(n - 1 for n in ids.values())
    assert twice <= duplicates, f"{twice} messages are there twice, at most {duplicates} may be"
    return twice
