"""Open every page of the site in Chromium: `python -m tools.screens SITE`.

On a phone and on a desktop. Prints and fails for a page that is wider than the screen,
for an element that has to be scrolled sideways (but drawings of characters, `none`),
and for a request to another host; and if there is no Chromium on PATH.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

WIDTHS = (390, 1280)  # px, of common phones, and of a desktop
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
SECONDS = 120  # for all pages
PROBE = """<!doctype html><body><script>
const found = [];
const wide = (element) => element.scrollWidth > element.clientWidth + 1;
async function look(page, width) {
  const frame = document.createElement("iframe");
  frame.style = `width: ${width}px; height: 800px; border: 0`;
  frame.src = page;
  document.body.append(frame);
  await new Promise((loaded) => (frame.onload = loaded));
  const inner = frame.contentDocument, root = inner.documentElement;
  if (wide(root)) found.push(`${page} at ${width}: ${root.scrollWidth} px wide`);
  const scrolled = new Set(["auto", "scroll"]);
  for (const each of inner.querySelectorAll("article :not(.highlight-none pre)")) {
    const style = frame.contentWindow.getComputedStyle(each);
    if (!scrolled.has(style.overflowX) || !wide(each)) continue;
    found.push(`${page} at ${width}: <${each.localName}> is ${each.scrollWidth} px ` +
      `wide: ${each.textContent.trim().slice(0, 50)}`);
  }
  for (const each of frame.contentWindow.performance.getEntriesByType("resource"))
    if (!each.name.startsWith(location.origin)) found.push(`${page} asks ${each.name}`);
  frame.remove();
}
(async () => {
  for (const page of PAGES) for (const width of WIDTHS) await look(page, width);
  fetch("/done", { method: "POST", body: JSON.stringify(found) });
})();
</script>"""


class Handler(SimpleHTTPRequestHandler):
    """Serve the site, the page that opens its pages, and take what that one found."""

    probe: str
    found: list[str] | None = None
    is_done: threading.Event

    def do_GET(self) -> None:
        """Answer with the probe, or with a file."""
        if self.path != "/probe":
            return super().do_GET()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write(self.probe.encode())
        return None

    def do_POST(self) -> None:
        """Take what was found."""
        length = int(self.headers["Content-Length"])
        type(self).found = json.loads(self.rfile.read(length))
        self.send_response(204)
        self.end_headers()
        self.is_done.set()

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def main(site: Path) -> int:
    """Look at every page; return 1 if something was found."""
    if browser() is None:
        print("screens: no chromium is on PATH")
        return 1
    pages = [f"/{path.relative_to(site)}" for path in sorted(site.rglob("*.html"))]
    found = looked_at(site, pages)
    print(*found, sep="\n", end="\n" if found else "")
    print(f"{len(pages)} pages at {WIDTHS} px: {len(found)} faults")
    return 1 if found or not pages else 0


def browser() -> str | None:
    """Return the path of a Chromium."""
    return next(filter(None, map(shutil.which, NAMES)), None)


def looked_at(site: Path, pages: list[str]) -> list[str]:
    """Return what Chromium found in these pages."""
    values = {"WIDTHS": json.dumps(WIDTHS), "PAGES": json.dumps(pages)}
    Handler.probe = re.sub("WIDTHS|PAGES", lambda name: values[name[0]], PROBE)
    Handler.is_done = threading.Event()
    handler = partial(Handler, directory=site)
    with (
        ThreadingHTTPServer(("127.0.0.1", 0), handler) as server,
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile,
    ):
        threading.Thread(target=server.serve_forever, daemon=True).start()
        process = subprocess.Popen(
            [
                *(browser() or "", "--headless", "--no-sandbox", "--disable-gpu"),
                *("--no-first-run", "--disable-background-networking"),
                f"--user-data-dir={profile}",
                f"http://127.0.0.1:{server.server_port}/probe",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            if not Handler.is_done.wait(SECONDS):
                return [f"chromium did not end within {SECONDS} s"]
        finally:
            process.kill()
            process.wait()
            server.shutdown()
    assert Handler.found is not None
    return Handler.found


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
