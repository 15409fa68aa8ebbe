"""What the tests of the Elasticsearch sink stand on: real servers, KQL as Kibana sends it, scripts
that hurt.

`Server` is one node of OpenSearch or Elasticsearch, which ends with the process that started it.
`kql()` makes of a line that somebody types into the query bar the query that Kibana or OpenSearch
Dashboards sends for it; the fixtures in tests/fixtures/elasticsearch hold known pairs, against
which the tests hold it.
"""

import base64
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile

import pytest

import harness
from harness import PATIENCE, wait_for

SERVERS = harness.ROOT / "tests" / "support" / "servers"
FIXTURES = harness.ROOT / "tests" / "fixtures" / "elasticsearch"
TEMPLATES = harness.ROOT / "backends" / "elasticsearch" / "templates"
PLUGIN = harness.BUILD / "plugins" / "elasticsearch.so"

# The servers that a test may ask for: what `fetch` calls it, which JDK it needs, whether it has
# users and HTTPS.
KINDS = {
    "opensearch2": ("opensearch2", 11, False),
    "opensearch3": ("opensearch3", 21, False),
    "opensearch2-secure": ("opensearch2-secure", 11, True),
    "elasticsearch8": ("elasticsearch8", 17, False),
    "elasticsearch9": ("elasticsearch9", 21, False),
    "elasticsearch8-secure": ("elasticsearch8", 17, True),
}


def free_port():
    """Below the ephemeral range, so that no outgoing connection takes it between here and the
    server's start."""
    for _ in range(200):
        port = 20000 + int.from_bytes(os.urandom(2), "big") % 12000
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue
    raise AssertionError("no free port")


def java_home(least):
    """The home of a JDK of at least that version, or None. $JAVA_HOME counts, then all that Debian
    keeps."""
    candidates = [os.environ.get("JAVA_HOME",
                                 "")] + sorted(map(str, pathlib.Path("/usr/lib/jvm").glob("*")))
    for home in candidates:
        if home and os.access(f"{home}/bin/javac", os.X_OK):
            out = subprocess.run([f"{home}/bin/java", "-version"], capture_output=True, text=True)
            found = re.search(r'version "(?:1\.)?(\d+)', out.stderr)
            if found and int(found.group(1)) >= least:
                return str(pathlib.Path(home).resolve())
    return None


def fetched(name):
    """The folder of a server's files; skips the test by the server's name where it cannot be
    had."""
    result = subprocess.run([str(SERVERS / "fetch"), name], capture_output=True, text=True)
    if result.returncode == 77:
        pytest.skip(result.stderr.strip())
    assert result.returncode == 0, f"fetch {name}: {result.stderr}"
    return result.stdout.strip().splitlines()[-1]


def certificates(directory):
    """CA, server and client certificates for 127.0.0.1 in `directory`."""
    done = subprocess.run([str(SERVERS / "tls" / "make-certs.sh"), str(directory)],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return pathlib.Path(directory)


class Server:
    """One node. `kind` is a key of KINDS; settings are "name=value" (OpenSearch) or lines of
    elasticsearch.yml."""

    def __init__(self, kind, settings=(), certs=None, environment=None, heap="1g"):
        folder, jdk, self.secure = KINDS[kind]
        self.kind, self.settings, self.certs = kind, list(settings), certs
        self.flavor = "opensearch" if kind.startswith("opensearch") else "elasticsearch"
        self.java = java_home(jdk)
        if not self.java:
            pytest.skip(
                f"skipped: {kind}: no JDK {jdk} or later (looked at JAVA_HOME and /usr/lib/jvm)")
        self.files = fetched(folder)
        # Not in memory, of which a server has its share already.
        self.work = pathlib.Path(tempfile.mkdtemp(prefix=f"scr-{kind}-", dir="/tmp"))
        self.work.chmod(0o755)
        if self.secure and self.certs is None:
            self.certs = certificates(self.work / "certs")
        self.user = {"opensearch": "admin:admin",
                     "elasticsearch": "admin:changeme"}[self.flavor] if self.secure else None
        self.port = free_port()
        self.environment = {"HEAP": heap, **(environment or {})}
        self.process = None
        self._connection = None

    # ---- its life --------------------------------------------------------------------------------
    def launch(self):
        """Starts it and returns at once; wait_ready() waits. So two can start at the same time."""
        env = {**os.environ, **self.environment, "JDK": self.java, "JAVA": f"{self.java}/bin/java"}
        stdin = subprocess.DEVNULL
        if self.kind in ("opensearch2", "opensearch3"):
            command = [SERVERS / "opensearch" / "search-node.sh", self.files, self.work, self.port,
                       *self.settings]
            stdin = subprocess.PIPE  # it ends when this pipe does, so never later than we
        else:
            script = "opensearch/secure-node.sh" if self.flavor == "opensearch" \
            else "elasticsearch/es-node.sh"
            command = [SERVERS / script, self.files, self.work,
                       self.port] + ([self.certs] if self.secure else [])
            env["EXTRA"] = "\n".join(self.settings)
        with open(self.work / "out.log", "ab") as log:
            self.process = subprocess.Popen([str(c) for c in command], stdin=stdin, stdout=log,
                                            stderr=log, env=env)
        return self

    def wait_ready(self, seconds=400):
        def answers():
            if self.process.poll() is not None:
                # no use in waiting on
                raise RuntimeError(
                    f"{self.kind} ended with {self.process.returncode}:\n{self.log_tail()}")
            status, answer = self.request("GET",
                                          "/_cluster/health?wait_for_status=yellow&timeout=1s")
            return status == 200 and answer["status"] in ("yellow", "green")
        try:
            wait_for(answers, f"{self.kind} answers", seconds, step=0.2)
        except AssertionError as e:
            raise AssertionError(f"{e}\n{self.log_tail()}") from None
        return self

    def start(self):
        return self.launch().wait_ready()

    def end(self, how=signal.SIGTERM):
        """Stops the process, keeps the data: start() brings it back on the same port."""
        if self.process and self.process.poll() is None:
            self.process.send_signal(how)
            try:
                self.process.wait(60 * PATIENCE)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        if self.process and self.process.stdin:
            self.process.stdin.close()
        self._forget_connection()

    def remove(self):
        self.end()
        shutil.rmtree(self.work, ignore_errors=True)

    def log_tail(self, lines=30):
        try:
            return "\n".join((self.work
                              / "out.log").read_text(errors="replace").splitlines()[-lines:])
        except OSError:
            return "(no log)"

    # ---- asking ----------------------------------------------------------------------------------
    @property
    def url(self):
        return f"{'https' if self.secure else 'http'}://127.0.0.1:{self.port}"

    def _forget_connection(self):
        if self._connection:
            self._connection.close()
        self._connection = None

    def _connect(self):
        if self.secure:
            context = ssl.create_default_context(cafile=str(self.certs / "ca.pem"))
            return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=120 * PATIENCE,
                                               context=context)
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=120 * PATIENCE)

    def request(self, method, path, body=None, headers=None, user=None):
        """(status, decoded answer). A body that is no text is sent as JSON. `user` "name:password"
        instead of the admin's."""
        headers = {"Content-Type": "application/json", **(headers or {})}
        credentials = user or self.user
        if credentials and "Authorization" not in headers:
            headers["Authorization"] = "Basic " + base64.b64encode(credentials.encode()).decode()
        if body is not None and not isinstance(body, (str, bytes)):
            body = json.dumps(body)
        if isinstance(body, str):
            body = body.encode("utf-8", "surrogatepass")
        for attempt in (1, 2):  # a kept connection may have been closed by the other side meanwhile
            fresh = self._connection is None
            try:
                if fresh:
                    self._connection = self._connect()
                self._connection.request(method, path, body, headers)
                answer = self._connection.getresponse()
                data = answer.read()
                break
            except (OSError, http.client.HTTPException):
                self._forget_connection()
                if fresh or attempt == 2:
                    raise
        try:
            return answer.status, json.loads(data)
        except ValueError:
            return answer.status, data.decode(errors="replace")

    def call(self, method, path, body=None, **kwargs):
        """Like request(), but must succeed; returns the answer only."""
        status, answer = self.request(method, path, body, **kwargs)
        assert status < 300, f"{method} {path}: {status}: {json.dumps(answer)[:600]}"
        return answer

    def bulk(self, index, documents, refresh=True):
        """[(id, document)] by `create`; returns the items' results."""
        lines = []
        for id_, document in documents:
            lines += [json.dumps({"create": {"_index": index, "_id": id_}}), json.dumps(document)]
        answer = self.call("POST", "/_bulk" + ("?refresh=true" if refresh else ""),
                           "\n".join(lines) + "\n",
                           headers={"Content-Type": "application/x-ndjson"})
        return [item["create"] for item in answer["items"]]

    def search(self, index, query, size=100, **more):
        """Ids of the hits, sorted."""
        answer = self.call("POST", f"/{index}/_search",
                           {"query": query, "size": size, "_source": False, **more})
        assert answer["_shards"]["failed"] == 0, answer["_shards"]
        return sorted(hit["_id"] for hit in answer["hits"]["hits"])

    def discover(self, index, query, size=500):
        """The answer to what Kibana's Discover sends around a query, highlighting included; for
        OpenSearch what Dashboards sends. Documents of 2026 only: the time picker."""
        body = {
            "query": {"bool": {"must": [], "should": [], "must_not": [], "filter": [
                query, {"range": {"@timestamp": {"format": "strict_date_optional_time",
                                                 "gte": "2026-01-01T00:00:00.000Z",
                                                 "lte": "2026-12-31T23:59:59.999Z"}}}]}},
            "size": size, "version": True, "stored_fields": ["*"], "script_fields": {},
            "highlight": {"pre_tags": ["@kibana-highlighted-field@"],
                          "post_tags": ["@/kibana-highlighted-field@"],
                          "fields": {"*": {}}, "fragment_size": 2147483647}}
        if self.flavor == "opensearch":
            body |= {"sort": [{"@timestamp": {"order": "desc", "unmapped_type": "boolean"}}],
                     "_source": {"excludes": []},
                     "docvalue_fields": [{"field": "@timestamp", "format": "date_time"}]}
        else:
            body |= {"sort": [{"@timestamp": {"order": "desc",
                                              "format": "strict_date_optional_time",
                                              "unmapped_type": "boolean"}}],
                     "_source": False, "fields": [{"field": "*", "include_unmapped": "true"},
                                                  {"field": "@timestamp",
                                                   "format": "strict_date_optional_time"}]}
        answer = self.call("POST", f"/{index}/_search?ignore_unavailable=true&preference=1", body)
        assert answer["_shards"]["failed"] == 0, json.dumps(answer["_shards"])[:600]
        return answer

    def hits(self, index, query):
        return sorted(hit["_id"] for hit in self.discover(index, query)["hits"]["hits"])

    def refresh(self, index="scriptorium-job-*"):
        self.call("POST", f"/{index}/_refresh?ignore_unavailable=true")

    def count(self, index="scriptorium-job-*", query=None):
        """How many documents there are, after a refresh."""
        self.refresh(index)
        answer = self.call("POST", f"/{index}/_search?ignore_unavailable=true",
                           {"size": 0, "track_total_hits": True,
                            "query": query or {"match_all": {}}})
        assert answer["_shards"]["failed"] == 0, answer["_shards"]
        return answer["hits"]["total"]["value"]

    def values(self, *fields, index="scriptorium-job-*", step=10000):
        """These keyword fields of every document, as tuples, with repeats."""
        self.refresh(index)
        found, after = [], None
        while True:
            body = {"size": step, "sort": [{"id": "asc"}, {"_index": "asc"}], "_source": False,
                    "docvalue_fields": list(fields)}
            if after:
                body["search_after"] = after
            hits = self.call("POST", f"/{index}/_search", body)["hits"]["hits"]
            if not hits:
                return found
            found += [tuple(hit["fields"][f][0] for f in fields) for hit in hits]
            after = hits[-1]["sort"]

    def document(self, index, query):
        """The _source of the only document that answers, or None."""
        hits = self.call("POST", f"/{index}/_search?ignore_unavailable=true",
                         {"query": query, "size": 2})["hits"]["hits"]
        assert len(hits) < 2, f"{len(hits)} documents answer {query}"
        return hits[0]["_source"] if hits else None

    def put_template(self, family="job", stream=False):
        """Our index template by hand, for tests that have no daemon. What these servers lack is
        taken out: ILM."""
        suffix = "-stream" if stream else ""
        template = json.loads((TEMPLATES / f"{self.flavor}-{family}{suffix}.json").read_text())
        template["template"]["settings"]["index"].pop("lifecycle", None)
        name = f"scriptorium-stream-{family}" if stream else f"scriptorium-{family}"
        return self.call("PUT", f"/_index_template/{name}", template)

    def indices(self, pattern="scriptorium-job-*,scriptorium-usage-*"):
        return sorted(i["index"]
                      for i in self.call("GET", f"/_cat/indices/{pattern}?format=json&h=index"))

    def wipe(self):
        """Removes all of our indices, streams and templates for the next test. A server
        without the module for data streams keeps those that a test has made."""
        self.request("DELETE", "/_data_stream/scriptorium-*")
        for index in self.indices():
            self.request("PUT", f"/{index}/_settings",
                         {"index.blocks.read_only": None, "index.blocks.write": None})
            self.call("DELETE", f"/{index}")
        for name in ("job", "usage", "stream-job", "stream-usage"):
            self.request("DELETE", f"/_index_template/scriptorium-{name}")


def sink(server, **options):
    """Options of [sink.search] for a server that asks for no password."""
    return {"plugin": "elasticsearch", "hosts": [server.url], "retry_max_ms": 500,
            "batch_max_ms": 200, **options}


def secret_file(directory, name, text):
    path = pathlib.Path(directory) / name
    path.write_text(text + "\n")
    path.chmod(0o600)
    return str(path)


# ---- KQL -----------------------------------------------------------------------------------------
class KqlError(ValueError):
    """The query bar would show a syntax error."""


class _Kql:
    """The grammar of Kibana's query bar, without nested fields: (a and b or not c), field: value,
    field: (a or b), field < value, "quoted", wild*."""

    SPECIAL = set('\\():<>"*{}')

    def __init__(self, text):
        self.text, self.at = text, 0

    def fail(self, what):
        raise KqlError(f"{what} at {self.at}: {self.text!r}")

    def blank(self):
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1

    def word(self, word):
        """Takes a keyword if one is here and a blank or parenthesis follows."""
        found = re.compile(rf"\s*{word}(?=[\s(])", re.I).match(self.text, self.at)
        if found:
            self.at = found.end()
        return bool(found)

    def take(self, character):
        self.blank()
        if self.text.startswith(character, self.at):
            self.at += len(character)
            return True
        return False

    def parse(self):
        tree = self.either(self.term)
        self.blank()
        if self.at != len(self.text):
            self.fail("not understood")
        return tree

    def either(self, leaf):
        parts = [self.both(leaf)]
        while self.word("or"):
            parts.append(self.both(leaf))
        return parts[0] if len(parts) == 1 else ("or", parts)

    def both(self, leaf):
        parts = [self.negated(leaf)]
        while self.word("and"):
            parts.append(self.negated(leaf))
        return parts[0] if len(parts) == 1 else ("and", parts)

    def negated(self, leaf):
        return ("not", self.grouped(leaf)) if self.word("not") else self.grouped(leaf)

    def grouped(self, leaf):
        if self.take("("):
            tree = self.either(leaf)
            if not self.take(")"):
                self.fail("no closing parenthesis")
            return tree
        return leaf()

    def term(self):
        value = self.literal()
        for operator in ("<=", ">=", "<", ">"):
            if self.take(operator):
                return ("range", value[0], operator, self.literal()[0])
        if self.take(":"):
            field = value[0]
            return self.grouped(lambda: ("is", field, *self.literal()))
        return ("is", None, *value)

    def literal(self):
        """(text with wildcards as they are, quoted?, has a wildcard?)"""
        self.blank()
        if self.text.startswith('"', self.at):
            self.at += 1
            out = ""
            while not self.text.startswith('"', self.at):
                if self.at >= len(self.text):
                    self.fail("no closing quote")
                if self.text[self.at] == "\\" and self.text[self.at + 1:self.at + 2] in ("\\", '"'):
                    self.at += 1
                out += self.text[self.at]
                self.at += 1
            self.at += 1
            return out, True, False
        out, wild = "", False
        while self.at < len(self.text):
            c = self.text[self.at]
            if c == "\\":
                self.at += 1
                if self.text[self.at:self.at + 1] not in self.SPECIAL:
                    self.fail("backslash before a character that needs none")
                out += self.text[self.at]
            elif c == "*":
                wild, out = True, out + "*"
            elif c in self.SPECIAL:
                break
            elif c.isspace() and re.compile(r"\s+(or|and|not)(?=[\s(]|$)", re.I).match(self.text,
                                                                                       self.at):
                break
            else:
                out += c
            self.at += 1
        out = out.strip()
        if not out:
            self.fail("a value is missing")
        return out, False, wild


# Fields that are keywords and nothing else: newer Kibana asks for them with term and wildcard.
_KEYWORDS = re.compile(
    r"^(jobid|id|kind|cluster|scheduler|capture|problems|lossy|host\.name|"
    r"user\.(?!verified)[a-z.]+|"
    r"job\.(id|name|account|partition|qos|work_dir|array\.[a-z_]+|het\.job_id|state)|"
    r"script\.(interpreter|directives|modules|sha256|encoding))$")
_DATES = ("@timestamp", "time", "captured_at", "job.submitted_at")


def kql(text, modern=False):
    """The query that is sent for this line: as Kibana 7 and OpenSearch Dashboards send it, or as
    newer Kibana does."""
    def should(*queries):
        return {"bool": {"should": list(queries), "minimum_should_match": 1}}

    def convert(tree):
        what = tree[0]
        if what == "or":
            return should(*map(convert, tree[1]))
        if what == "and":
            return {"bool": {"filter": [convert(t) for t in tree[1]]}}
        if what == "not":
            return {"bool": {"must_not": convert(tree[1])}}
        if what == "range":
            _, field, operator, value = tree
            limit = {{"<": "lt", "<=": "lte", ">": "gt", ">=": "gte"}[operator]: value}
            return should({"range": {field: limit | ({"time_zone": "UTC"} if field in _DATES
                                                     else {})}})
        _, field, value, quoted, wild = tree
        if field is None:
            if wild:
                return {"query_string": {"query": escaped(value)}}
            return {"multi_match": {"type": "phrase" if quoted else "best_fields", "query": value,
                                    "lenient": True}}
        if wild and value == "*":
            return should({"exists": {"field": field}})
        if modern and _KEYWORDS.match(field):
            return should({"wildcard" if wild else "term": {field: {"value": value}}})
        if wild:
            return should({"query_string": {"fields": [field], "query": escaped(value)}})
        if field in _DATES:
            return should({"range": {field: {"gte": value, "lte": value, "time_zone": "UTC"}}})
        return should({"match_phrase" if quoted else "match": {field: value}})

    def escaped(value):
        return re.sub(r'[+\-=&|><!(){}\[\]^"~?:\\/]', lambda m: "\\" + m.group(0), value)
    return convert(_Kql(text).parse())


def both_forms(text):
    """The one or two queries that may be sent for a line, by the age of the Kibana."""
    old, new = kql(text), kql(text, modern=True)
    return [old] if old == new else [old, new]


def vectors(flavor):
    """(KQL, query, ids that must be found) of every recorded pair."""
    for line in (FIXTURES / "kql-vectors.ndjson").read_text(encoding="utf-8").splitlines():
        v = json.loads(line)
        yield v["kql"], v["query"], v.get("hits_opensearch",
                                          v["hits"]) if flavor == "opensearch" else v["hits"]


def nested(flat):
    """{"a.b": 1} as {"a": {"b": 1}}."""
    out = {}
    for key, value in flat.items():
        *path, last = key.split(".")
        into = out
        for part in path:
            into = into.setdefault(part, {})
        into[last] = value
    return out


# ---- scripts that hurt ---------------------------------------------------------------------------
def hostile_scripts(size):
    """Name and text of scripts, each made of one thing that a regular expression or an index may
    choke on."""
    pieces = {
        "words joined by dots": "a.", "flags without blanks": "-a", "flags": " -a",
        "underscores": "_", "parts": "_a",
        "one long word": "a", "dashes": "--", "a word, then dashes": "a" + "-" * 50,
        "accents joined by dots": "\u00e9.",
        "blanks": " ", "emoji": "\U0001f600", "combining marks": "a\u0301\u0301",
        "hexadecimal": "0123456789abcdef",
        "quotes and newlines": "\"'\\\n", "NUL": "\0 ",
    }
    for name, piece in pieces.items():
        yield name, piece * (size // len(piece.encode()))
