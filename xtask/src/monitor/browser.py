"""The monitor's page in headless Chromium: numbers move, plots draw, keys work, texts from data stay text, the page
fits a phone, and neither the console nor the network has anything to complain about. Takes pictures.

    browser.py CHROMIUM URL STATEMENT PICTURES

The page shows STATEMENT as somebody's. Chromium is spoken to by its DevTools protocol, over two pipes.
"""

import base64
import fcntl
import json
import os
import pathlib
import select
import subprocess
import sys
import tempfile
import time

PATIENCE = 60
# Name, width, height (0: the whole page), pixels for each, colours.
PICTURES = [("light", 1440, 0, 1, "light"), ("dark", 1440, 0, 1, "dark"), ("phone", 390, 844, 2, "light")]


# Chromium reads from 3 and writes to 4.
START = "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); os.execv(sys.argv[3], sys.argv[3:])"


def pipe():
    """Both ends have other numbers than those."""
    ends = os.pipe()
    moved = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends]
    for end in ends:
        os.close(end)
    return moved


class Browser:
    def __init__(self, chromium):
        self.dir = tempfile.TemporaryDirectory()
        to_read, self.write_to = pipe()
        self.read_from, to_write = pipe()
        self.process = subprocess.Popen(
            [sys.executable, "-c", START, str(to_read), str(to_write), chromium, "--no-sandbox", "--disable-gpu",
             "--hide-scrollbars", "--remote-debugging-pipe", "--user-data-dir=" + self.dir.name],
            stderr=subprocess.DEVNULL, pass_fds=(to_read, to_write))
        os.close(to_read)
        os.close(to_write)
        self.unread = b""
        self.count, self.session, self.complaints = 0, None, []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ["Page", "Runtime", "Log", "Network"]:
            self.call(domain + ".enable")

    def call(self, method, **params):
        self.count += 1
        message = {"id": self.count, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.write_to, json.dumps(message).encode() + b"\0")
        while True:
            message = self.read()
            if message.get("id") == self.count:
                assert "error" not in message, f"{method}: {message['error']}"
                return message["result"]
            self.hear(message)

    def read(self):
        while b"\0" not in self.unread:
            ready, _, _ = select.select([self.read_from], [], [], PATIENCE)
            assert ready, f"Chromium has not answered for {PATIENCE} seconds"
            more = os.read(self.read_from, 1 << 20)
            assert more, "Chromium has ended"
            self.unread += more
        message, _, self.unread = self.unread.partition(b"\0")
        return json.loads(message)

    def hear(self, event):
        method, params = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(params["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.complaints.append(str([a.get("value") for a in params["args"]]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.complaints.append(params["entry"]["text"])
        elif method == "Network.loadingFailed":
            self.complaints.append("a request failed: " + params["errorText"])
        elif method == "Network.responseReceived" and params["response"]["status"] >= 400:
            self.complaints.append(f"{params['response']['url']}: {params['response']['status']}")

    def value(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, f"{expression}: {result['exceptionDetails']}"
        return result["result"].get("value")

    def until(self, what, expression):
        begun = time.monotonic()
        while not self.value(expression):
            assert time.monotonic() - begun < PATIENCE, f"in {PATIENCE} seconds not so: {what}"
            time.sleep(0.1)

    def press(self, key, **more):
        text = {"text": key} if len(key) == 1 else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **text, **more)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, **more)

    def look(self, width, height, ratio, scheme):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=ratio,
                  mobile=width < 600)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def picture(self, path):
        shot = self.call("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(shot["data"]))

    def close(self):
        self.process.kill()
        self.process.wait()


def check_numbers(page):
    page.until("the page is live", "typeof byId === 'function' && byId('live').textContent === 'live'")
    assert page.value("location.search") == "", "the token stays in the address"
    page.until("commits are counted", "parseFloat(document.querySelector('#tiles dd').textContent) > 0")
    before = page.value("[samples.newest.time, byId('tiles').textContent]")
    page.until("samples come", f"samples.newest.time > {before[0]} + 3")
    assert page.value("byId('tiles').textContent") != before[1], "the numbers stand still"
    assert page.value("document.querySelectorAll('.finding b').length") > 0, "there is no verdict"
    assert page.value("byId('undo').tBodies[0].rows.length") == 2, "there are two undo tablespaces"
    page.until("somebody waits for a lock", WAITS)


# How many pixels of each plot have the colour of one of its series. Nothing else is drawn in these.
DRAWN = """cards.map((card) => {
  const canvas = card.u.ctx.canvas, pixels = card.u.ctx.getImageData(0, 0, canvas.width, canvas.height).data;
  const colors = card.plot.series.map(([, name]) => color(name).match(/[0-9a-f]{2}/gi).map((hex) => parseInt(hex, 16)));
  const isNear = (n) => (rgb) => rgb.every((part, at) => Math.abs(pixels[n + at] - part) < 6);
  let found = 0;
  for (let n = 0; n < pixels.length; n += 4) if (pixels[n + 3] > 200 && colors.some(isNear(n))) found++;
  return [card.plot.title, found];
})"""


def check_plots(page):
    # A few samples in five minutes are hardly a pixel.
    page.value("showInterval(samples.newest.time - 8, samples.newest.time)")
    begun = time.monotonic()
    while empty := [title for title, pixels in page.value(DRAWN) if pixels <= 20]:
        assert time.monotonic() - begun < PATIENCE, f"nothing is drawn: {empty}"
        time.sleep(0.5)
    page.press("Escape")


def check_keys(page):
    documented = page.value("[...document.querySelectorAll('footer kbd')].map((key) => key.textContent)")
    names = {"←": "ArrowLeft", "→": "ArrowRight", "−": "-", "Esc": "Escape"}
    keys = page.value("Object.keys(KEYS)")
    assert {names.get(key, key) for key in documented} == set(keys) - {"="}, (documented, keys)
    pressed = "document.querySelector('[data-minutes][aria-pressed=true]')?.dataset.minutes"
    for key, minutes in [("3", "60"), ("2", "15"), ("1", "5")]:
        page.press(key)
        assert page.value(pressed) == minutes, f"key {key}"
    page.press("3")
    width = "interval()[1] - interval()[0]"
    page.press("+")
    near = page.value(width)
    page.press("-")
    assert page.value(width) >= near, "key -"
    page.press("+")
    begin = page.value("interval()[0]")
    page.press("ArrowRight")
    page.press("ArrowLeft")
    page.press("ArrowLeft")
    assert page.value("interval()[0]") <= begin, "key ArrowLeft"
    page.until("it stands still", "byId('live').textContent === 'standing still'")
    page.press("Escape")
    page.until("it goes on", "byId('live').textContent === 'live'")
    page.press("p")
    assert page.value("byId('pause').ariaPressed") == "true", "key p"
    page.press("p")
    page.press("1")


# Everything that can be reached with the tabulator, in order, and whether one sees where one is.
FOCUS = """[document.activeElement.ariaLabel || document.activeElement.textContent,
  getComputedStyle(document.activeElement).outlineStyle]"""


def check_focus(page):
    seen = {}
    for _ in range(80):
        page.press("Tab", code="Tab", windowsVirtualKeyCode=9)
        name, outline = page.value(FOCUS)
        if page.value("document.activeElement === document.body"):
            break
        assert outline != "none", f"one does not see that {name} has the focus"
        seen[name.split(":")[0]] = True
    titles = page.value("PLOTS.map((plot) => plot.title.split(':')[0])")
    wanted = ["5 min", "Pause", "CSV", "PNG", "Transactions", "Undo tablespaces", "Waits for locks", *titles]
    assert not (missing := [name for name in wanted if name not in seen]), f"not reached: {missing}"
    labels = page.value("cards.map((card) => card.place.ariaLabel)")
    assert all(":" in label for label in labels), labels
    page.value("document.activeElement.blur()")


def check_statement(page, statement):
    shown = "[...document.querySelectorAll('#transactions td.statement')].map((cell) => cell.textContent)"
    page.until("the statement is shown", f"{shown}.includes({json.dumps(statement)})")
    assert page.value("document.scripts.length") == 3, "a text has become a script"
    assert page.value("window.hacked") is None, "a text was run"


# Of texts with what is behind them, after WCAG 2.
CONTRASTS = """(() => {
  const light = (name) => {
    const parts = color(name).match(/[0-9a-f]{2}/gi) ?? color(name).match(/[0-9a-f]/gi).map((digit) => digit + digit);
    const [r, g, b] = parts.map((hex) => parseInt(hex, 16) / 255).map((c) => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (a, b) => (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05);
  return ["--text", "--muted", "--well", "--note", "--warning", "--bad"].map((name) => [name, contrast(name, "--card")])
    .concat([["--press", contrast("--press", "--on-press")]]);
})()"""


def check_colours(page):
    for scheme in ["light", "dark"]:
        page.look(1440, 900, 1, scheme)
        for name, contrast in page.value(CONTRASTS):
            assert contrast >= 4.5, f"{scheme}: {name} has a contrast of {contrast:.1f}"


def check_exports(page):
    page.value("window.saved = []; HTMLAnchorElement.prototype.click = function () { saved.push([this.download, this.href]); }; true")
    page.value("byId('png').click(), byId('csv').click(), true")
    page.until("both are there", "saved.length === 2")
    saved = {name.rsplit(".", 1)[1]: url for name, url in page.value("saved")}
    assert saved["png"].startswith("blob:"), saved
    lines = page.value(f"fetch({json.dumps(saved['csv'])}).then((a) => a.text()).then((t) => t.split('\\n').length)")
    assert lines > 5, f"the CSV file has {lines} lines"


HEIGHT = "Math.ceil(document.body.getBoundingClientRect().height)"
WAITS = "byId('waits').textContent.includes('item, index PRIMARY')"


def take_pictures(page, folder):
    for name, width, height, ratio, scheme in PICTURES:
        page.look(width, height or 900, ratio, scheme)
        page.value("scrollTo(0, 0)")
        # Plots follow the new width and colours.
        time.sleep(1.5)
        wide = page.value("document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0, f"{name}: the page is {wide} pixels wider than the window"
        if height:
            page.picture(folder / f"monitor-{name}.png")
        else:
            whole_page(page, width, ratio, scheme, folder / f"monitor-{name}.png")


def whole_page(page, width, ratio, scheme, path):
    """With somebody who waits for a lock. Rows come and go meanwhile, and with them the page's height changes."""
    begun = time.monotonic()
    while time.monotonic() - begun < PATIENCE:
        page.until("somebody waits for a lock", WAITS)
        height = page.value(HEIGHT)
        page.look(width, height, ratio, scheme)
        page.picture(path)
        if page.value(HEIGHT) == height and page.value(WAITS):
            return
    raise AssertionError("the page has never the same height")


def main():
    chromium, url, statement, folder = sys.argv[1:]
    folder = pathlib.Path(folder)
    begun = time.monotonic()
    page = Browser(chromium)
    try:
        page.look(1440, 900, 1, "light")
        page.call("Page.navigate", url=url)
        check_numbers(page)
        check_plots(page)
        check_keys(page)
        check_focus(page)
        check_statement(page, statement)
        check_colours(page)
        take_pictures(page, folder)
        check_exports(page)
        assert not page.complaints, "\n".join(page.complaints)
    finally:
        page.close()
    print(f"The monitor's page works, after {time.monotonic() - begun:.0f} s; pictures of it are in {folder}")


if __name__ == "__main__":
    main()
