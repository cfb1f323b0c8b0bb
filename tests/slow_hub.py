"""A local server that acts as a slow Hugging Face Hub with one repository."""

import contextlib
import hashlib
import http.server
import json
import threading
import time
import urllib.parse

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@contextlib.contextmanager
def serving(files, seconds):
    """Serve files, {name: content}, after a delay in seconds. Yield the address."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_HEAD(self):  # noqa: N802
            self.answer(with_body=False)

        def do_GET(self):  # noqa: N802
            self.answer()

        def log_message(self, *args):
            pass

        def answer(self, with_body=True):
            time.sleep(seconds)
            path = urllib.parse.unquote(self.path.partition("?")[0])
            body, kind = self.content(path)
            self.send_response(200 if body is not None else 404)
            body = body or b""
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("X-Repo-Commit", COMMIT)
            self.send_header("ETag", f'"{hashlib.sha1(body).hexdigest()}"')
            self.end_headers()
            if with_body:
                self.wfile.write(body)

        def content(self, path):
            if "/resolve/" in path:
                return files.get(path.rpartition("/")[2]), "application/octet-stream"
            if "/tree/" in path:
                found = [
                    {"type": "file", "oid": "0" * 40, "size": len(content), "path": name}
                    for name, content in files.items()
                ]
                return json.dumps(found).encode(), "application/json"
            siblings = [{"rfilename": name} for name in files]
            found = {"id": "someone/some", "sha": COMMIT, "siblings": siblings, "private": False}
            return json.dumps(found).encode(), "application/json"

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
