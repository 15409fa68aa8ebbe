"""The page in Chromium, over Apache as it is configured in packaging/web, with a login: what it
looks like and loads, by keyboard, in the dark, on a phone, and with scripts that want to be more
than text."""

import contextlib
import json
import os
import pathlib
import re
import shutil
import tempfile
import urllib.parse

import pytest

import harness
import page_lab
from harness import wait_for
from page_lab import Apache, PageSite, array_events, fetch, password, running, sampled_events
from test_serve import ALICE, BOB, COORDINATOR, GONE, JOBS, SUPPORT, jobs_of
from test_usage_page import DAY, sweep

AXE = "axe-core-4.10.2"
MB = 1 << 20
MARKUP = ("</h1></td><script>document.title='run'</script><img src=x onerror=alert(1)>"
          "\"'&{{name}}")
ELSEWHERE = "http://192.0.2.1/"
# id: script. The jobs are Alice's, and their names, accounts and directories are markup.
HOSTILE = {
    401: b"#!/bin/bash\n" + bytes(4 * MB) + b"\n",
    402: b"#!/bin/bash\n# " + b"x" * 4 * MB,
    403: b"#!/bin/bash\n" + b"</pre><script>document.title='run'</script>\n" * (4 * MB // 44),
    404: (f"#!/bin/bash\n</code></pre></main><script>alert(1)</script>\n<img src={ELSEWHERE}a.png "
          f"onerror=alert(1)>\n<style>body{{display:none}}</style><meta http-equiv=refresh "
          f"content='0;url={ELSEWHERE}'>\n<link rel=stylesheet href={ELSEWHERE}b.css><base href="
          f"{ELSEWHERE}>\n<svg onload=alert(1)><iframe src={ELSEWHERE}></iframe>\n"
          "{{{script}}} &amp; <!-- \n").encode(),
    405: ("#!/bin/bash\necho \u202egnp.exe\n# \u2066isolated\u2069 zero\u200bwidth soft\u00adhyphen"
          "\necho one\recho two\r\necho \x1b[31mred\a\x7f\n").encode()
         + b"echo nul\0here \xff\xfe caf\xe9\n",
    406: b"\xff" * 100000 + b"\n\r" * 100000,
    407: b"\n" * MB,
}
# Any but the one that every page has.
FOREIGN_SCRIPT = "script:not([src$='/app.js'])"
PAGES = {"home": "", "newest": "?q=", "found": "?q=mdrun", "not found": "?q=nowhere",
         "a wrong query": "?q=%28", "reports": "reports?by=account",
         "job": f"job/lab/{jobs_of(ALICE)[0]}", "hostile job": "job/lab/404",
         "array": "job/lab/4900", "plots": "job/lab/501", "many nodes": "job/lab/502"}


class HostileSite(PageSite):
    def __init__(self, work):
        super().__init__(work)
        self.add_jobs(ALICE, HOSTILE, [f"SLURM_JOB_NAME={MARKUP}".encode(), b"A\xff=\0",
                                       f"B={MARKUP}".encode()],
                      MARKUP + "\u202e{job}", f"/tmp/{MARKUP}\u202e")
        self.add_events(ALICE, [*array_events(4900, 20, sweep), *sampled_events(501, DAY, 3, 40),
                                *sampled_events(502, DAY, 10, 40)])


@pytest.fixture(scope="module")
def apache():
    with (page_lab.running_site(HostileSite) as site,
          running(Apache(site.work, "apache-basic.conf", site.page_socket)) as proxy):
        yield proxy


class Browser:
    def __init__(self, base, user):
        self.base = base
        options = webdriver.ChromeOptions()
        for argument in ("--headless=new", "--no-sandbox", "--disable-gpu",
                         "--disable-dev-shm-usage", "--window-size=1280,900"):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = webdriver.Chrome(service=Service("/usr/bin/chromedriver"), options=options)
        self.driver.set_page_load_timeout(120 * harness.PATIENCE)
        self.run = self.driver.execute_script
        # From then on it knows the password.
        self.driver.get(base.replace("://", f"://{user}:{urllib.parse.quote(password(user))}@"))

    def open(self, path):
        self.driver.get_log("browser"), self.driver.get_log("performance")
        self.driver.get(self.base + path)
        return self

    def console(self):
        """Its lines, but for the one that every page has whose status is not 200."""
        status = f"{self.driver.current_url} - Failed to load resource"
        return [line for line in self.driver.get_log("browser")
                if not line["message"].startswith(status)]

    def requests(self):
        """The addresses of all that was loaded, or would have been."""
        events = [json.loads(line["message"])["message"]
                  for line in self.driver.get_log("performance")]
        return [event["params"]["request"]["url"] for event in events
                if event["method"] == "Network.requestWillBeSent"]

    def command(self, name, **parameters):
        return self.driver.execute_cdp_cmd(name, parameters)

    @contextlib.contextmanager
    def looking(self, how):
        """In the dark, or on a phone."""
        if how == "dark":
            self.command("Emulation.setEmulatedMedia",
                         features=[{"name": "prefers-color-scheme", "value": "dark"}])
        if how == "phone":
            self.command("Emulation.setDeviceMetricsOverride", width=360, height=740,
                         deviceScaleFactor=2, mobile=True)
        try:
            yield
        finally:
            self.command("Emulation.setEmulatedMedia", features=[])
            self.command("Emulation.clearDeviceMetricsOverride")

    def press(self, *keys):
        ActionChains(self.driver).send_keys(*keys).perform()


try:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys
    MISSING = not shutil.which("chromium") or not os.access("/usr/bin/chromedriver", os.X_OK)
except ImportError:
    MISSING = True


@pytest.fixture(scope="module")
def browser_of(apache):
    """browser_of(user): one after the other, since each takes much memory."""
    if MISSING:
        pytest.skip("no browser here; apt-get install chromium chromium-driver python3-selenium")
    running_one = {}

    def get(user):
        if user not in running_one:
            close()
            running_one[user] = Browser(apache.base, user)
        return running_one[user]

    def close():
        while running_one:
            running_one.popitem()[1].driver.quit()
    yield get
    close()


@pytest.fixture
def browser(browser_of):
    return browser_of(ALICE)


def luminance(colour):
    """From 0 to 1, of rgb(r, g, b)."""
    red, green, blue = map(float, re.findall(r"[\d.]+", colour)[:3])
    return (0.2126 * red + 0.7152 * green + 0.0722 * blue) / 255


# ---- what is loaded and shown --------------------------------------------------------------------
@pytest.mark.parametrize("page", PAGES)
def test_a_page_loads_nothing_from_elsewhere_and_the_console_is_empty(browser, work, page):
    browser.open(PAGES[page])
    assert browser.console() == []
    requests = browser.requests()
    assert requests and all(url.startswith(browser.base) for url in requests), requests
    assert browser.run("return [...document.scripts].map(s => s.src.split('/').pop())"
                       ) == ["app.js"]
    assert browser.run("return document.title") not in ("", "run")
    picture = work / "page.png"
    browser.driver.save_screenshot(str(picture))
    assert picture.stat().st_size > 5000


@pytest.mark.parametrize("page, pictures, names", [
    ("plots", 3, ["n1", "n2", "n3"]), ("many nodes", 3, ["least of all nodes", "mean of all nodes",
                                                         "most of all nodes"]), ("array", 2, [])])
def test_use_is_drawn(browser, page, pictures, names):
    browser.open(PAGES[page])
    drawn = browser.run("""return [...document.querySelectorAll('main svg[role=img]')].map(svg => {
        const box = svg.getBoundingClientRect();
        return [svg.querySelector('title').textContent, box.width > 100 && box.height > 30,
                svg.querySelectorAll('path, rect').length, getComputedStyle(
                    svg.querySelector('path, rect')).stroke]})""")
    assert len(drawn) == pictures and all(is_seen for _, is_seen, _, _ in drawn), drawn
    assert browser.run("return [...document.querySelectorAll('figure:first-of-type .keys li')]"
                       ".map(e => e.innerText.trim())") == names
    if names:
        assert [parts for _, _, parts, _ in drawn] == [3, 4, 3]  # of memory, the limit too
        assert all(stroke != "none" for _, _, _, stroke in drawn)


@pytest.mark.parametrize("user", [BOB, COORDINATOR, SUPPORT])
def test_each_role_opens_its_jobs_from_the_list(browser_of, user):
    browser = browser_of(user)
    browser.open("?q=mdrun")
    jobs = {re.search(r"job/lab/(\d+)", link.get_attribute("href")).group(1): link
            for link in browser.driver.find_elements(By.CSS_SELECTOR, "main a[href*='job/lab/']")}
    seen = {BOB: jobs_of(BOB), COORDINATOR: ["201", "203", "302"],
            SUPPORT: sorted(map(str, JOBS))}[user]
    assert sorted(jobs) == seen
    jobs[seen[-1]].click()
    assert f"run_{seen[-1]}.tpr" in browser.run("return document.body.innerText")
    assert browser.console() == []


def test_the_search_box_and_a_job_are_reached_by_keys_alone(browser):
    browser.open("")
    focused = "return document.activeElement.matches(arguments[0])"

    def tab_to(selector):
        for _ in range(50):
            if browser.run(focused, selector):
                return
            browser.press(Keys.TAB)
        raise AssertionError(f"no Tab leads to {selector}")
    tab_to("input[name=q]")
    browser.press("run_203", Keys.ENTER)
    wait_for(lambda: "q=run_203" in browser.driver.current_url, "the query is in the address")
    tab_to("a[href*='job/lab/203']")
    browser.press(Keys.ENTER)
    wait_for(lambda: "job/lab/203" in browser.driver.current_url, "the job is open")
    assert "run_203.tpr" in browser.run("return document.body.innerText")
    browser.driver.back()
    assert browser.run("return document.querySelector('input[name=q]').value") == "run_203"


def test_a_slash_goes_to_the_search_box(browser):
    browser.open(PAGES["job"])
    in_box = "return document.activeElement.matches('input[name=q]')"
    assert not browser.run(in_box)
    browser.press("/")
    assert browser.run(in_box)
    browser.press("a/b")
    assert browser.run("return document.activeElement.value") == "a/b"
    assert browser.console() == []


def test_jobs_are_chosen_and_compared_by_keys_alone(browser):
    browser.open("?q=mdrun")
    boxes = browser.driver.find_elements(By.CSS_SELECTOR, "input[type=checkbox]")
    ids = [box.get_attribute("aria-label").split()[-1] for box in boxes[:3]]
    for box in boxes[:3]:
        browser.run("arguments[0].focus()", box)
        browser.press(" ")
    browser.press(Keys.ENTER)
    wait_for(lambda: "/compare?" in browser.driver.current_url, "the comparison is open")
    heads = browser.driver.find_elements(By.CSS_SELECTOR, "thead th a")
    assert sorted(head.text for head in heads) == sorted(ids)
    assert browser.console() == []


# Not the addresses of a script's lines, of which there may be thousands.
REACHABLE = """return [...document.querySelectorAll(
    'a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex="0"]')]
    .filter(e => e.checkVisibility() && !e.matches('pre a[tabindex="-1"]'))"""


@pytest.mark.parametrize("page", ["home", "newest", "found", "reports", "job"])
def test_all_that_can_be_used_is_reached_by_tab_and_shows_that_it_is(browser, page):
    browser.open(PAGES[page])
    wanted = browser.run(REACHABLE)
    assert wanted
    reached = []
    for _ in wanted:
        browser.press(Keys.TAB)
        reached.append(browser.driver.switch_to.active_element)
        style = browser.run("const s = getComputedStyle(document.activeElement);"
                            "return [s.outlineStyle, s.outlineWidth, s.boxShadow]")
        assert style[0] != "none" and style[1] != "0px" or style[2] != "none", \
            reached[-1].get_attribute("outerHTML")
    assert reached == wanted, [e.get_attribute("outerHTML") for e in set(wanted) - set(reached)]


@pytest.mark.parametrize("page", PAGES)
def test_a_dark_desktop_gets_a_dark_page(browser, page):
    colours = "const s = getComputedStyle(document.body); return [s.backgroundColor, s.color]"
    browser.open(PAGES[page])
    background, text = map(luminance, browser.run(colours))
    assert background > 0.8 and text < 0.3
    with browser.looking("dark"):
        background, text = map(luminance, browser.run(colours))
        assert background < 0.2 and text > 0.6


@pytest.mark.parametrize("page", PAGES)
def test_a_phone_need_not_scroll_sideways(browser, page):
    with browser.looking("phone"):
        browser.open(PAGES[page])
        assert browser.run("return innerWidth") == 360
        assert browser.run("return document.documentElement.scrollWidth") <= 360
        small = browser.run("""return [...document.querySelectorAll('main *')].filter(e =>
            e.checkVisibility() && e.textContent.trim()
            && parseFloat(getComputedStyle(e).fontSize) < 12).map(e => e.outerHTML.slice(0, 200))
            """)
        assert small == []


@pytest.fixture(scope="module")
def axe():
    folder = page_lab.cached(AXE, ["npm", "pack", "--silent", AXE.replace("-4", "@4")],
                             "the test of accessibility")
    [package] = folder.glob("*.tgz")
    with tempfile.TemporaryDirectory() as unpacked:
        shutil.unpack_archive(package, unpacked)
        return (pathlib.Path(unpacked) / "package" / "axe.min.js").read_text()


@pytest.mark.parametrize("how", ["light", "dark", "phone"])
@pytest.mark.parametrize("page", [*PAGES, "absent"])
def test_axe_finds_nothing(browser, axe, page, how):
    with browser.looking(how):
        browser.open(PAGES.get(page, f"job/lab/{GONE}"))
        browser.command("Runtime.evaluate", expression=axe)
        found = browser.driver.execute_async_script(
            "const done = arguments[0]; axe.run().then(r => done([r.passes.length, r.violations"
            ".map(v => [v.id, v.impact, v.nodes.map(n => n.html)])]), e => done([0, String(e)]))")
    assert found[0] > 10 and found[1] == []


# ---- scripts that want to be more than text ------------------------------------------------------
@pytest.mark.parametrize("job", HOSTILE)
def test_a_hostile_script_is_text(browser, apache, job):
    browser.open(f"job/lab/{job}")
    assert browser.console() == []
    assert all(url.startswith(browser.base) for url in browser.requests())
    assert browser.driver.current_url == f"{apache.base}job/lab/{job}"
    assert browser.run("return document.title") != "run"
    assert browser.run("return document.querySelectorAll(arguments[0]).length",
                       f"{FOREIGN_SCRIPT}, img, iframe, svg[onload], style, base,"
                       "meta[http-equiv]") == 0
    assert browser.run("return document.querySelectorAll('main').length") == 1
    text = browser.run("return document.body.textContent")
    # The name, account and directory.
    assert text.count("</h1></td><script>document.title='run'</script><img src=x") >= 3
    assert "\u202e" not in text
    assert "\\u202e" in text
    downloaded = fetch(apache.base, f"job/lab/{job}/script", ALICE)
    assert downloaded.body == HOSTILE[job]
    assert downloaded.headers["Content-Security-Policy"] == "sandbox"
    assert downloaded.headers.get_content_type() == "application/octet-stream"


@pytest.mark.parametrize("job", HOSTILE)
def test_a_page_is_within_limits_whatever_the_script_is(browser, apache, job):
    page = fetch(apache.base, f"job/lab/{job}", ALICE)
    # 256 KB of the script, of which a character takes up to 6 bytes, in up to 5,000 lines.
    assert page.status == 200 and len(page.body) < 2 * MB
    page.body.decode()  # it is UTF-8
    assert not re.search(rb"[\0-\x08\x0b-\x1f\x7f]", page.body)
    browser.open(f"job/lab/{job}")
    assert browser.run("return document.querySelectorAll('*').length") < 30000


def script_text(browser, job):
    browser.open(f"job/lab/{job}")
    return browser.run("return document.querySelector('main pre.lines').textContent")


@pytest.mark.parametrize("job, shown", [
    (401, ["U+0000"]),
    (404, ["</code></pre></main><script>alert(1)</script>", f"<img src={ELSEWHERE}a.png",
           "<svg onload=alert(1)>", "{{{script}}} &amp; <!-- "]),
    (405, ["U+202E", "U+2066", "U+2069", "U+200B", "U+00AD", "U+000D", "U+001B", "U+0007", "U+007F",
           "nulU+0000here", "\\xff\\xfe caf\\xe9"]),
    (406, ["\\xff"]),
])
def test_what_cannot_be_seen_is_named(browser, job, shown):
    text = script_text(browser, job)
    for part in shown:
        assert part in text
    assert not set("\u202e\u2066\u2069\u200b\u00ad\r\x1b\a\x7f\0\ufffd") & set(text)


def test_the_page_of_an_ordinary_job_is_its_script_and_small(browser, apache):
    job = jobs_of(ALICE)[0]
    raw = fetch(apache.base, f"job/lab/{job}/script", ALICE).text
    assert script_text(browser, job).strip("\n").splitlines() == raw.splitlines()
    assert len(fetch(apache.base, f"job/lab/{job}", ALICE).body) < 60000
    assert len(fetch(apache.base, "", ALICE).body) < 60000


def test_a_query_is_text_too(browser):
    browser.open(f"?q={urllib.parse.quote(MARKUP)}")
    assert browser.console() == []
    assert browser.run("return document.querySelector('input[name=q]').value") == MARKUP
    assert browser.run("return document.querySelectorAll(arguments[0]).length",
                       f"{FOREIGN_SCRIPT}, img") == 0
    assert browser.run("return document.title") != "run"


def test_the_hostile_jobs_are_listed_as_text(browser, apache):
    browser.open("")
    links = browser.run("return [...document.querySelectorAll('main a')].map(a => a.href)")
    assert {f"{apache.base}job/lab/{job}" for job in HOSTILE} <= {u.split("?")[0] for u in links}
    assert browser.run("return document.querySelectorAll(arguments[0]).length",
                       f"{FOREIGN_SCRIPT}, img, h1") == 1
    text = browser.run("return document.body.textContent")
    assert MARKUP.split("{")[0] in text and "\u202e" not in text
