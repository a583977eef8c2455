"""Attacks on the page from a browser that visits another site."""

import http.server
import threading
from contextlib import contextmanager

import pytest

from tests.support.browser.page import go


@contextmanager
def somebody_elses_site(html):
    """Serve one document at every path of another port of this machine."""

    class Site(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            body = html.encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Site)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def ui(logstore_broker):
    logstore_broker.create_topic("users", partitions=1)
    logstore_broker.append("users", key=b"1", value=b"ann")
    return logstore_broker.ui()


def test_without_the_token_there_is_one_sentence_and_nothing_else(visitor, ui):
    bare = ui.url.partition("?")[0]
    page = visitor.visit(bare)
    assert "open the address printed when it was started" in page.inner_text("body")
    for path in ("main.js", "style.css", "api/about", "api/partitions", "api/events"):
        assert page.request.get(bare + path).status == 401, path
    visitor.watch_of(page).expect("401 (Unauthorized)")


def test_the_token_leaves_the_address_and_no_script_can_read_it(open_page, ui):
    page = open_page(ui)
    assert ui.token not in page.url
    assert page.evaluate("document.cookie") == ""
    (cookie,) = page.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
    page.go_back()
    assert ui.token not in page.url
    page.go_forward()
    page.reload()
    go(page, "#/")
    page.get_by_role("link", name="users-0").wait_for()


# Attempts by an attacker who knows the port; a lax parser would accept the form's body as JSON.
ATTEMPTS = """<!doctype html><title>Prizes</title>
<form method=post enctype=text/plain target=form action="TARGETapi/topics">
<input name='{"name": "by-form", "ignore": "' value='"}'></form><iframe name=form></iframe>
<form method=post target=urlencoded action="TARGETapi/topics">
<input name=name value=by-urlencoded></form><iframe name=urlencoded></iframe>
<script>
const body = JSON.stringify({name: "by-fetch"});
const json = {"Content-Type": "application/json"};
const tries = [
  {method: "POST", body, credentials: "include", mode: "no-cors"},
  {method: "POST", body, credentials: "include", headers: json},
  {method: "POST", body, credentials: "include", headers: {"Content-Type": "text/plain"}},
  {method: "DELETE", body: "{}", credentials: "include", headers: json},
  {method: "GET", credentials: "include"},
];
async function attempt() {
  const results = [];
  for (const options of tries) {
    const path = options.method === "DELETE" ? "api/topics/users" : "api/topics";
    const target = "TARGET" + (options.method === "GET" ? "api/about" : path);
    try {
      const answer = await fetch(target, options);
      results.push(answer.type === "opaque" ? "opaque" : await answer.text());
    } catch (error) { results.push("refused"); }
  }
  for (const form of document.forms) form.submit();
  return results;
}
</script>"""


@pytest.mark.parametrize("name", ("127.0.0.1", "localhost"))
def test_a_page_of_another_origin_changes_and_reads_nothing(
    open_page, visitor, ui, logstore_broker, name
):
    """The reader is logged in; to a browser another port of the same host is even the same site."""
    page = open_page(ui)
    target = ui.url.partition("?")[0]
    with somebody_elses_site(ATTEMPTS.replace("TARGET", target)) as port:
        foreign = f"http://{name}:{port}/"
        watch = visitor.watch_of(page)
        watch.allow(foreign)
        other = page.context.new_page()
        statuses = []
        other.on(
            "response",
            lambda it: (
                it.url.startswith(target) and statuses.append((it.request.method, it.status))
            ),
        )
        other.goto(foreign)
        results = other.evaluate("attempt()")
        assert set(results) <= {"refused", "opaque"}
        assert results[1:] == ["refused"] * 4
        for frame in ("form", "urlencoded"):
            other.wait_for_function(
                """name => { const frame = document.querySelector(`[name=${name}]`);
                try { return frame.contentDocument === null; } catch { return true; } }""",
                arg=frame,
            )
        other.close()
        # All attempts were intended, and Chromium reports each failure.
        assert watch.findings
        assert all(
            any(
                word in finding
                for word in ("CORS", "Failed to load resource", "frame", "chrome-error")
            )
            for finding in watch.findings
        ), watch.findings
        watch.findings.clear()
    assert [topic.name for topic in logstore_broker.topics()] == ["users"]
    assert ("POST", 200) not in statuses
    assert {status for method, status in statuses if method in ("POST", "DELETE")} <= {401, 403}
    assert ("POST", 403) in statuses or ("POST", 401) in statuses


def test_the_page_cannot_be_framed(open_page, visitor, ui):
    page = open_page(ui)
    target = ui.url.partition("?")[0]
    with somebody_elses_site(
        f"<!doctype html><title>x</title><iframe src='{target}'></iframe>"
    ) as port:
        watch = visitor.watch_of(page)
        watch.allow(f"http://127.0.0.1:{port}/")
        other = page.context.new_page()
        other.goto(f"http://127.0.0.1:{port}/")
        framed = other.frames[1]
        framed.wait_for_load_state()
        assert framed.locator("main").count() == 0
        other.close()
    watch.findings.clear()
