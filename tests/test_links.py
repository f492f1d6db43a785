"""The check of external links, which needs a network, on a server of its own."""

from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

from tests.links import failures, links


@contextmanager
def serving():
    """Answers 200 under /there, and 404 elsewhere."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200 if self.path == "/there" else 404)
            self.end_headers()

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_links_are_those_of_other_sites():
    page = "[a](https://a.org/x#y), <http://b.org/>. `http://127.0.0.1:8000` (https://c.org/d)."
    assert links(page) == {"https://a.org/x", "http://b.org/", "https://c.org/d"}


def test_what_cannot_be_fetched_is_named():
    with serving() as url:
        assert failures([f"{url}/there"]) == []
        assert failures([f"{url}/gone", f"{url}/there"]) == [f"{url}/gone: status 404"]
    (unreachable,) = failures([f"{url}/there"])
    assert "ConnectError" in unreachable
