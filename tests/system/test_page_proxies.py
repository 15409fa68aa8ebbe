"""The page behind Apache and nginx, as they are configured in packaging/web: who is logged in, what
each finds, and that nobody becomes another user by what is sent.

No network is needed, but for the provider of the OpenID Connect test, once.
"""

import contextlib
import html.parser
import http.cookiejar
import re
import select
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.parse
import urllib.request

import pytest

import page_lab
from harness import PATIENCE, wait_for
from page_lab import PROXY_USER, Apache, Nginx, OpenIdApache, as_user, basic, fetch, running
from search_lab import free_port
from test_serve import ALICE, BOB, CHEM, COORDINATOR, GONE, JOBS, SUPPORT, account_of, jobs_of

FINDS = {ALICE: jobs_of(ALICE), BOB: jobs_of(BOB), COORDINATOR: sorted(map(str, CHEM)),
         SUPPORT: sorted(map(str, JOBS))}


@pytest.fixture(scope="module")
def site():
    with page_lab.running_site() as site:
        yield site


@pytest.fixture(scope="module")
def apache(site):
    with running(Apache(site.work, "apache-basic.conf", site.page_socket)) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def nginx(site):
    with running(Nginx(site.work, "nginx.conf", site.page_socket)) as proxy:
        yield proxy


@pytest.fixture(scope="module", params=["apache", "nginx"])
def proxy(request):
    return request.getfixturevalue(request.param)


class Links(html.parser.HTMLParser):
    def __init__(self, page):
        super().__init__()
        self.all = []
        self.feed(page.text)

    def handle_starttag(self, tag, attributes):
        self.all += [value for name, value in attributes if name in ("href", "src", "action")]


def jobs_on(page):
    assert page.status == 200, page.text
    return sorted({found.group(1) for link in Links(page).all
                   if (found := re.search(r"\bjob/lab/(\d+)", link))})


# ---- login and rights ----------------------------------------------------------------------------
def test_without_a_login_the_proxy_asks_for_one_and_the_service_is_not_asked(site, proxy):
    position = len(site.log())
    for headers in ({}, {"Authorization": "Basic Z2FtZXM6d3Jvbmc="}, {"X-Remote-User": "root"}):
        for path in ("", "job/lab/201", "job/lab/201/script", "static/page.css"):
            refused = fetch(proxy.base, path, headers=headers)
            assert (refused.status, refused.headers["WWW-Authenticate"]) == (401,
                                                                             'Basic realm="jobs"')
    assert site.answered(position) == []


@pytest.mark.parametrize("user", FINDS)
def test_each_finds_and_opens_the_jobs_that_they_may_see(site, proxy, user):
    wait_for((site.work / "catalog" / "coordinators.json").exists,
             "the daemon has asked who coordinates")
    assert jobs_on(fetch(proxy.base, user=user)) == FINDS[user]
    assert jobs_on(fetch(proxy.base, "?q=mdrun", user)) == FINDS[user]
    for job in FINDS[user]:
        page = fetch(proxy.base, f"job/lab/{job}", user)
        assert page.status == 200 and f"run_{job}.tpr" in page.text
        assert page.headers["Cache-Control"] == "private, no-cache"
        script = fetch(proxy.base, f"job/lab/{job}/script", user)
        assert script.text.startswith("#!/bin/bash\nmodule load") and f"run_{job}" in script.text
        assert f'filename="{job}.sh"' in script.headers["Content-Disposition"]
        assert script.headers["X-Content-Type-Options"] == "nosniff"
        head = fetch(proxy.base, f"job/lab/{job}", user, "HEAD")
        assert (head.status, head.body) == (200, b"")


@pytest.mark.parametrize("user", FINDS)
def test_a_report_is_what_the_command_prints(site, apache, user):
    wait_for((site.work / "catalog" / "coordinators.json").exists,
             "the daemon has asked who coordinates")
    since, until = "2020-01-01T00:00Z", "2100-01-01T00:00Z"
    for by in ("user", "program", "week"):
        for form, path in (("csv", "reports.csv"), ("json", "api/v1/reports")):
            printed = site.ask(user, "report", "--by", by, "--since", since, "--until", until,
                               f"--{form}").stdout
            page = fetch(apache.base, f"{path}?by={by}&since={since}&until={until}", user)
            assert page.text.splitlines() == printed.splitlines() != []
    page = fetch(apache.base, "reports?by=account&since=2d", user)
    accounts = {account_of(int(job)) for job in FINDS[user]}
    [*rows, total] = [link for link in Links(page).all if link.startswith(".?q=")
                      and "ended" in link]
    assert len(rows) == len(accounts)
    assert jobs_on(fetch(apache.base, total, user)) == FINDS[user]
    assert sorted(job for row in rows for job in jobs_on(fetch(apache.base, row, user))
                  ) == FINDS[user]


@pytest.mark.parametrize("user", [ALICE, BOB, COORDINATOR])
def test_what_a_user_may_not_see_is_as_if_it_never_was(proxy, user):
    def answer(path, job):
        page = fetch(proxy.base, path.format(job), user)
        headers = {name: value for name, value in page.headers.items() if name != "Date"}
        return page.status, headers, re.sub(rf"(?<!\d){job}(?!\d)", "ID", page.text)

    for job in sorted(set(map(str, JOBS)) - set(FINDS[user])):
        for path in ("job/lab/{}", "job/lab/{}/script"):
            assert answer(path, job) == answer(path, GONE)
            assert answer(path, job)[0] == 404
        for query in ("job:{}", "run_{}", "name:md_{}"):
            assert answer(f"?q={query}", job) == answer(f"?q={query}", GONE), query
        assert fetch(proxy.base, f"job/lab/{job}", user, headers={"If-None-Match": "*"}
                     ).status == 404
    for other in {ALICE, BOB} - {user}:
        seen = set(FINDS[user]) & set(FINDS[other])
        assert set(jobs_on(fetch(proxy.base, f"?q=user:{other}", user))) == seen


def test_all_links_lead_to_pages_below_the_proxys_prefix(proxy):
    seen, waiting = set(), {""}
    while waiting:
        path = waiting.pop()
        seen.add(path)
        page = fetch(proxy.base, path, ALICE)
        assert page.status == 200, path
        if page.headers.get_content_type() != "text/html":
            continue
        for link in Links(page).all:
            url = urllib.parse.urljoin(proxy.base + path, link)
            assert url.startswith(proxy.base), (path, link)
            found = url[len(proxy.base):].partition("#")[0]
            if found != "compare":  # of a form, where jobs must be chosen
                waiting |= {found} - seen
    assert len(seen) > 2 * len(FINDS[ALICE])


def test_the_pages_without_a_slash_at_the_end_are_found(proxy):
    moved = fetch(proxy.base[:-1], user=ALICE)
    assert moved.status == 301 and moved.headers["Location"].endswith("/jobs/")


def test_who_asked_for_what_is_in_the_services_log(site, proxy):
    position = len(site.log())
    fetch(proxy.base, "job/lab/301", BOB, headers={"X-Forwarded-For": "192.0.2.66"})
    [line] = [line for line in site.log()[position:].splitlines() if "SERVE_ANSWERED" in line]
    assert f"user={BOB}" in line and "301" in line and "address=127.0.0.1" in line, line
    assert re.search(r"events=[0-9a-f]{64}", line), line


# ---- forging -------------------------------------------------------------------------------------
def hidden(user="root"):
    """A request that is to be taken for another user's."""
    return f"GET / HTTP/1.1\r\nHost: h\r\nX-Remote-User: {user}\r\nConnection: close\r\n\r\n"


CHUNKED = "0\r\n\r\n" + hidden()
LENGTH = len(hidden())
# What is sent after the first request's `Host` and name: the header's further lines with what
# follows them, and the status of each answer by the socket, Apache and nginx. "next" is another
# request with its own, right name. Whatever happens, nobody but the one who is logged in gets an
# answer.
FORGED = {
    "twice": ("X-Remote-User: root\r\n", "next", "403", "200", "200"),
    "twice, in capitals": ("X-REMOTE-USER: root\r\n", "next", "403", "200", "200"),
    "twice, in small letters": ("x-remote-user: root\r\n", "next", "403", "200", "200"),
    "three times": ("X-Remote-User: root\r\nx-remote-user: root\r\n", "next", "403", "200", "200"),
    "with underscores": ("X_Remote_User: root\r\n", "next", "200 200", "200", "200"),
    "named in Connection": ("Connection: close, X-Remote-User\r\n", "", "200", "200", "200"),
    "a blank before the colon": ("X-Remote-User : root\r\n", "next", "400", "400", "400"),
    "NUL in the name": ("X-Remote-User\0: root\r\n", "next", "400", "400", "400"),
    "NUL in the value": ("X-Remote-User: ro\0ot\r\n", "next", "400", "400", "400"),
    "a folded line": ("X-Other: 1\r\n X-Remote-User: root\r\n", "next", "200 200", "200", "400"),
    "folded by CR alone": ("X-Other: 1\rX-Remote-User: root\r\n", "next", "400", "400", "400"),
    "Content-Length twice": (f"Content-Length: 0\r\nContent-Length: {LENGTH}\r\n", hidden(), "400",
                             "400", "400"),
    "chunked and Content-Length": (f"Transfer-Encoding: chunked\r\nContent-Length: {LENGTH}\r\n",
                                   CHUNKED, "400", "403", "400"),
    "a blank after chunked's name": ("Transfer-Encoding : chunked\r\n", CHUNKED, "400", "400",
                                     "400"),
    "lines that end in LF": (f"Content-Length: 0\nContent-Length: {LENGTH}\r\n", hidden(), "400",
                             "400", "400"),
    "a length with a sign": (f"Content-Length: +{LENGTH}\r\n", hidden(), "400", "400", "400"),
    "a list of lengths": (f"Content-Length: 0, {LENGTH}\r\n", hidden(), "400", "400", "400"),
    "chunked in a folded line": ("Transfer-Encoding:\r\n chunked\r\n", CHUNKED, "413", "403",
                                 "400"),
    "chunked twice": ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", CHUNKED,
                      "400", "403", "400"),
    "a tab after the colon": ("Transfer-Encoding:\tchunked\r\n", CHUNKED, "413", "403", "501"),
    "another coding": ("Transfer-Encoding: xchunked\r\n", CHUNKED, "413", "400", "501"),
    "chunked": ("Transfer-Encoding: chunked\r\n", CHUNKED, "413", "403", "200"),
    "a body": (f"Content-Length: {LENGTH}\r\n", hidden(), "413", "403", "200"),
    "an upgrade": ("Connection: Upgrade, close\r\nUpgrade: h2c\r\n", "", "200", "200", "200"),
}


def exchange(connection, request):
    """All that is answered until the connection is closed."""
    with connection:
        received = b""
        try:
            connection.sendall(request.encode("latin-1"))
            while piece := connection.recv(1 << 16):
                received += piece
        except (ConnectionResetError, BrokenPipeError):
            pass
        return received


def statuses(received):
    return re.findall(rb"HTTP/1\.[01] (\d{3}) ", received)


def connect(site, user=PROXY_USER):
    connection = socket.socket(socket.AF_UNIX)
    with as_user(user):
        connection.connect(str(site.page_socket))
    connection.settimeout(60 * PATIENCE)
    return connection


def head(user, path="/", method="GET"):
    return f"{method} {path} HTTP/1.1\r\nHost: h\r\nX-Remote-User: {user}\r\n"


@pytest.mark.parametrize("target", ["socket", "apache", "nginx"])
@pytest.mark.parametrize("row", FORGED)
def test_nobody_becomes_another_user(request, site, row, target):
    lines, follows, *expected = FORGED[row]
    expected = expected[["socket", "apache", "nginx"].index(target)].split()
    position = len(site.log())
    if target == "socket":
        # It stays open, as a proxy would keep it.
        connection, start = connect(site), head(ALICE)
        follows = head(ALICE) + "Connection: close\r\n\r\n" if follows == "next" else follows
    else:
        connection = request.getfixturevalue(target).connect()
        start = f"GET /jobs/ HTTP/1.1\r\nHost: h\r\nAuthorization: {basic(ALICE)}\r\n"
        start += "" if "Connection:" in lines else "Connection: close\r\n"
        follows = "" if follows == "next" else follows
    received = exchange(connection, f"{start}{lines}\r\n{follows}")
    assert [status.decode() for status in statuses(received)] == expected, received
    # One more, so that a request that waits behind the one above would have been answered.
    exchange(connect(site), head(BOB) + "Connection: close\r\n\r\n")
    assert site.answered(position) == [ALICE] * expected.count("200") + [BOB]
    assert (b"md_201" in received) == ("200" in expected)
    assert b"md_301" not in received


# At the socket alone: what a proxy with a fault might send. The request, and the answer.
REFUSED = {
    "no name": ("GET / HTTP/1.1\r\nHost: h\r\n\r\n", "403"),
    "an empty name": (head("") + "\r\n", "403"),
    "two names in one": (head(f"{ALICE}, root") + "\r\n", "403"),
    "two names, as Apache joins them": (head(f"{ALICE},root") + "\r\n", "403"),
    "a name with a folded line": (head(ALICE) + " root\r\n\r\n", "403"),
    "a name that the host does not know": (head("nobody-here") + "\r\n", "403"),
    "a uid": (head("0") + "\r\n", "403"),
    "in other letters": (head(ALICE.upper()) + "\r\n", "403"),
    "no host": (f"GET / HTTP/1.1\r\nX-Remote-User: {ALICE}\r\n\r\n", "400"),
    "two hosts": (head(ALICE) + "Host: i\r\n\r\n", "400"),
    "POST": (head(ALICE, method="POST") + "\r\n", "405"),
    "POST with a body": (head(ALICE, method="POST") + "Content-Length: 2\r\n\r\nhi", "405 400 413"),
    "OPTIONS": (head(ALICE, "*", "OPTIONS") + "\r\n", "405 400"),
    "CONNECT": (head(ALICE, "h:80", "CONNECT") + "\r\n", "405 400"),
    "a header of 9 KB": (head(ALICE) + f"X-Long: {'x' * 9000}\r\n\r\n", "431"),
    "a line of 9 KB": (head(ALICE, f"/?q={'x' * 9000}") + "\r\n", "431 414"),
    "100,000 lines": (head(ALICE) + "A: b\r\n" * 100000 + "\r\n", "431"),
    "HTTP/0.9": ("GET /\r\n\r\n", "400"),
    "TLS": ("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + "\0" * 100 + "\r\n\r\n", "400"),
    "HTTP/2": ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "400 405 505"),
    "an address in the request": (head(ALICE, "http://h/") + "\r\n", "400 404"),
    "above the root": (head(ALICE, "/../../etc/passwd") + "\r\n", "400 404"),
    "a NUL in the path": (head(ALICE, "/job/lab/%00") + "\r\n", "400 404"),
    "a broken escape": (head(ALICE, "/?q=%zz") + "\r\n", "400 404"),
}


@pytest.mark.parametrize("row", REFUSED)
def test_what_is_not_a_users_plain_request_is_refused(site, row):
    text, allowed = REFUSED[row]
    position = len(site.log())
    with connect(site) as connection:
        try:
            connection.sendall(text.encode("latin-1"))
        except (ConnectionResetError, BrokenPipeError):  # refused before it was all sent
            pass
        received = connection.recv(1 << 16)
    [status] = statuses(received)
    assert status.decode() in allowed.split(), received
    assert b"md_" not in received
    assert f"md_{jobs_of(ALICE)[0]}" in fetch_direct(site, ALICE)
    assert set(site.answered(position)) == {ALICE}


def fetch_direct(site, user, path="/"):
    return exchange(connect(site), head(user, path) + "Connection: close\r\n\r\n").decode()


@pytest.mark.parametrize("user", [ALICE, SUPPORT, "root"])
def test_only_the_proxys_user_may_speak_for_others(site, user):
    position = len(site.log())
    for name in (ALICE, "root"):
        received = exchange(connect(site, user), head(name) + "\r\n")
        assert statuses(received) == [b"403"] and b"md_" not in received
    assert site.answered(position) == []


@pytest.mark.parametrize("method, headers", [("POST", {}), ("PUT", {}), ("DELETE", {}),
                                             ("OPTIONS", {}), ("POST", {"Content-Length": "0"})])
def test_the_proxies_refuse_what_is_not_get_or_head(site, proxy, method, headers):
    position = len(site.log())
    assert fetch(proxy.base, user=ALICE, method=method, headers=headers).status == 403
    assert site.answered(position) == []


def test_the_browsers_other_headers_do_not_reach_the_service(site, proxy):
    """More of them than the service takes."""
    page = fetch(proxy.base, user=ALICE, headers={"Cookie": "portal=" + "x" * 8100})
    assert jobs_on(page) == FINDS[ALICE]


# ---- what docs/page.md shows ---------------------------------------------------------------------
def test_the_pages_commands_are_those_of_the_configurations():
    text = (page_lab.harness.ROOT / "docs" / "page.md").read_text()
    for file in page_lab.SHIPPED.iterdir():
        commands = re.findall(r"^#   (a2enmod .*|cp .*)", file.read_text(), re.M)
        assert commands and all(f"\n{command}\n" in text for command in commands), file


def test_the_command_that_asks_as_the_web_server_does_prints_the_first_page(site):
    text = (page_lab.harness.ROOT / "docs" / "page.md").read_text()
    command = re.search(r"sudo -u (\S+) (curl .*)", text)
    assert command.group(1) == PROXY_USER
    answer = subprocess.run(
        ["sh", "-c", command.group(2).replace("/run/scriptorium-web/page.sock",
                                              str(site.page_socket)).replace("alice", ALICE)],
        user=PROXY_USER, group=PROXY_USER, extra_groups=[], capture_output=True, text=True,
        timeout=60 * PATIENCE, check=True)
    assert f"md_{jobs_of(ALICE)[0]}" in answer.stdout


# ---- the service is away -------------------------------------------------------------------------
def test_a_stopped_service_is_the_proxys_503_or_502_and_a_started_one_answers_at_once(site, proxy):
    away = 503 if isinstance(proxy, Apache) else 502
    for end in (site.stop, lambda: (site.process.kill(), site.process.wait(60))):
        end()
        try:
            for _ in range(3):
                refused = fetch(proxy.base, user=ALICE)
                assert refused.status == away and "md_" not in refused.text
        finally:
            site.start()
        assert jobs_on(fetch(proxy.base, user=ALICE)) == FINDS[ALICE]


def test_a_service_that_is_killed_under_load_mixes_up_nobody(site, proxy):
    ended = threading.Event()
    clients = [(user, []) for user in (ALICE, BOB, COORDINATOR, SUPPORT)]

    def ask(user, answers):
        while not ended.is_set():
            try:
                page = fetch(proxy.base, user=user)
                answers.append(jobs_on(page) if page.status == 200 else page.status)
            except Exception as e:  # for the assertion below
                answers.append(e)

    def all_have(what, count):
        start = [len(answers) for _, answers in clients]
        wait_for(lambda: all(sum(what(user, answer) for answer in answers[begin:]) >= count
                             for begin, (user, answers) in zip(start, clients, strict=True)),
                 lambda: f"each client gets it: {[answers[-3:] for _, answers in clients]}")

    threads = [threading.Thread(target=ask, args=client) for client in clients]
    for thread in threads:
        thread.start()
    try:
        for _ in range(3):
            all_have(lambda user, answer: answer == FINDS[user], 5)
            site.process.kill()
            site.process.wait(60)
            all_have(lambda user, answer: answer in (502, 503), 1)
            site.start()
        all_have(lambda user, answer: answer == FINDS[user], 5)
    finally:
        ended.set()
        for thread in threads:
            thread.join(60)
        if site.process.poll() is not None:
            site.start()
    for user, answers in clients:
        # A page whose end did not arrive is seen by its length.
        wrong = [answer for answer in answers if answer not in (FINDS[user], 502, 503)
                 and type(answer).__name__ != "IncompleteRead"]
        assert not wrong, (user, wrong[:3])


# ---- one user in the way of others ---------------------------------------------------------------
@pytest.fixture(scope="module")
def large_script_site():
    with page_lab.running_site() as site:
        site.add_jobs(ALICE, {401: b"#!/bin/bash\n# " + b"x" * (4 << 20)})
        yield site


def send(site, path):
    connection = connect(site)
    connection.sendall((head(ALICE, path) + "\r\n").encode())
    return connection


def test_many_requests_of_one_user_keep_no_other_from_a_page(large_script_site):
    with contextlib.ExitStack() as stack:
        for _ in range(700):
            with contextlib.suppress(OSError):  # some may be refused
                stack.enter_context(send(large_script_site, "/?q=/mdr.n/"))
        assert f"md_{jobs_of(BOB)[0]}" in fetch_direct(large_script_site, BOB)


def test_slow_downloads_of_one_user_keep_no_other_from_a_page(large_script_site):
    site, ended = large_script_site, threading.Event()
    with contextlib.ExitStack() as stack:
        downloads = [stack.enter_context(send(site, "/job/lab/401/script")) for _ in range(24)]

        def read_slowly():
            while not ended.wait(2):
                for download in select.select(downloads, [], [], 0)[0]:
                    download.recv(1 << 16)
        reader = threading.Thread(target=read_slowly)
        reader.start()
        try:
            for _ in range(200):  # meanwhile more and more scripts wait for their reader
                assert f"md_{jobs_of(BOB)[0]}" in fetch_direct(site, BOB)
        finally:
            ended.set()
            reader.join()


# ---- OpenID Connect ------------------------------------------------------------------------------
class Browser:
    """As much of one as a login needs: it follows redirects, keeps cookies and sends a form."""

    def __init__(self):
        self.cookies = http.cookiejar.CookieJar()
        self.opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPCookieProcessor(self.cookies))

    def get(self, url, form=None, headers=None):
        request = urllib.request.Request(url, urllib.parse.urlencode(form).encode() if form
                                         else None, {"Accept": "text/html", **(headers or {})})
        try:
            answer = self.opener.open(request, timeout=60 * PATIENCE)
        except urllib.error.HTTPError as e:
            answer = e
        with answer:
            page = page_lab.Answer(answer.status, answer.headers, answer.read())
            page.url = answer.url
        return page

    def log_in(self, url, subject):
        """What the page at url shows after the login there."""
        form = self.get(url)
        assert f'value="{subject}"' in form.text, (form.url, form.text)
        return self.get(form.url, {"sub": subject})


@pytest.fixture(scope="module")
def provider():
    stub = page_lab.cached(
        "oidc-provider-mock-0.3.4",
        [sys.executable, "-m", "pip", "install", "-q", "--target", ".",
         "oidc-provider-mock==0.3.4"], "the login with OpenID Connect")
    port = free_port()
    people = [f'{{"sub": "u-{user}", "preferred_username": "{user}"}}'
              for user in (ALICE, BOB, SUPPORT, "nobody-here")]
    process = subprocess.Popen(
        [sys.executable, "-m", "oidc_provider_mock", "-p", str(port),
         *(word for claims in people for word in ("--user-claims", claims))],
        env={"PYTHONPATH": str(stub), "PATH": "/usr/bin:/bin"}, cwd="/",
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        url = f"http://127.0.0.1:{port}"
        wait_for(lambda: Browser().get(f"{url}/.well-known/openid-configuration").status == 200,
                 "the provider answers")
        yield url
    finally:
        process.terminate()
        process.wait(60)


@pytest.fixture(scope="module")
def openid(site, provider):
    with running(OpenIdApache(site.work, "apache-openidc.conf", site.page_socket, **{
            "https://idp.example.org": provider,
            "https://portal.example.org": "http://127.0.0.1:{port}"})) as proxy:
        yield proxy


@pytest.mark.parametrize("user", [ALICE, BOB, SUPPORT])
def test_a_login_at_the_provider_shows_the_users_jobs(site, openid, user):
    browser, position = Browser(), len(site.log())
    page = browser.log_in(openid.base, f"u-{user}")
    assert jobs_on(page) == FINDS[user] and page.url == openid.base
    assert set(site.answered(position)) == {user}
    [cookie] = [cookie for cookie in browser.cookies if cookie.path == "/jobs"]
    assert len(cookie.value) < 100, "it is a number of the session, not its content"
    assert {"HttpOnly", "SameSite"} <= set(cookie._rest)
    # The rest of what the table forges is the same as with Basic, whose lines are the same.
    forged = {"X-Remote-User": "root", "OIDC_CLAIM_preferred_username": "root",
              "OIDC-CLAIM-preferred-username": "root", "X_Remote_User": "root"}
    assert jobs_on(browser.get(openid.base, headers=forged)) == FINDS[user]
    assert browser.get(f"{openid.base}job/lab/{GONE}").status == 404


def test_without_a_login_at_the_provider_nothing_is_shown(site, openid):
    position = len(site.log())
    for headers in ({}, {"X-Remote-User": "root"}, {"Cookie": "mod_auth_openidc_session=1"}):
        page = Browser().get(openid.base, headers=headers)
        assert "md_" not in page.text and not page.url.startswith(openid.base)
        assert fetch(openid.base, headers={"Accept": "*/*", **headers}).status == 302
        assert fetch(openid.base, headers={"Accept": "application/json", **headers}).status == 401
    assert fetch(openid.base, "oidc?code=stolen&state=made-up").status in (400, 302)
    assert site.answered(position) == []


def test_a_login_whose_name_the_host_does_not_know_sees_nothing(site, openid):
    page = Browser().log_in(openid.base, "u-nobody-here")
    assert page.status == 403 and "md_" not in page.text


def test_a_logout_ends_the_session(openid):
    browser = Browser()
    browser.log_in(openid.base, f"u-{ALICE}")
    kept = {cookie.name: cookie.value for cookie in browser.cookies if cookie.path == "/jobs"}
    foreign = browser.get(f"{openid.base}oidc?logout=https://evil.example/")
    assert foreign.url.startswith(openid.base), "it leads nowhere else"
    browser.get(f"{openid.base}oidc?logout={urllib.parse.quote(openid.base)}")
    answer = fetch(openid.base, headers={"Accept": "application/json", "Cookie": "; ".join(
        f"{name}={value}" for name, value in kept.items())})
    assert answer.status == 401


def test_the_two_configurations_of_apache_protect_alike():
    """Of Apache's, the one with Basic goes through the table of what is forged."""
    def rules(name):
        text = (page_lab.SHIPPED / name).read_text()
        location = re.search(r'<Location "/jobs/">.*?</Location>', text, re.S).group()
        return [line.strip() for line in location.splitlines()
                if not re.match(r"\s*(#|$|Auth)", line)]
    assert rules("apache-basic.conf") == rules("apache-openidc.conf")
