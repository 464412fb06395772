"""The monitor's page in headless Chromium: numbers move, plots draw, keys and dragging work, truncations of undo
tablespaces are marked, texts from data stay text, what is exported can be read, the page fits a phone, and neither
the console nor the network has anything to complain about. Takes pictures.

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

    def drag(self, begin, end):
        """With the left button, from one place of the window to another."""
        left = {"button": "left", "clickCount": 1}
        middle = [(a + b) / 2 for a, b in zip(begin, end)]
        for kind, (x, y), more in [("mouseMoved", begin, {}), ("mousePressed", begin, left),
                                   ("mouseMoved", middle, {"buttons": 1}), ("mouseMoved", end, {"buttons": 1}),
                                   ("mouseReleased", end, left)]:
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

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


# How many pixels of a part of a picture have one of these colours. Of a copy: Chromium complains about canvases
# that are read again and again.
COUNT_PIXELS = """window.countPixels = (picture, names, left, top, right, bottom) => {
  const width = Math.round(right - left), height = Math.round(bottom - top);
  const ctx = new OffscreenCanvas(width, height).getContext("2d", { willReadFrequently: true });
  ctx.drawImage(picture, left, top, width, height, 0, 0, width, height);
  const pixels = ctx.getImageData(0, 0, width, height).data;
  const colors = names.map((name) => color(name).match(/[0-9a-f]{2}/gi).map((hex) => parseInt(hex, 16)));
  const isNear = (n) => (rgb) => rgb.every((part, at) => Math.abs(pixels[n + at] - part) < 6);
  let found = 0;
  for (let n = 0; n < pixels.length; n += 4) if (pixels[n + 3] > 200 && colors.some(isNear(n))) found++;
  return found;
}, true"""

# Of each plot, those in the colour of one of its series. Nothing else is drawn in these.
DRAWN = """cards.map((card) => {
  const { canvas } = card.u.ctx, names = card.plot.series.map(([, name]) => name);
  return [card.plot.title, countPixels(canvas, names, 0, 0, canvas.width, canvas.height)];
})"""


def check_plots(page):
    page.value(COUNT_PIXELS)
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
    # It does not become wider than the samples go back, nor narrower than five seconds.
    page.until("there are samples enough for zooming", "samples.newest.time - samples.times[0] > 25")
    page.press("3")
    widths = [page.value(WIDTH)]
    for key in "++-":
        page.press(key)
        widths.append(page.value(WIDTH))
    whole, near, nearer, wider = widths
    assert whole > near > nearer, f"key +: {widths}"
    assert wider > nearer, f"key -: {widths}"
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


WIDTH = "interval()[1] - interval()[0]"

# Where a part of a plot's width is in the window, and which time that is.
PLACE = """((card, part) => {
  const { left, top, width, height } = card.u.over.getBoundingClientRect();
  const x = Math.round(left + part * width);
  return [x, top + height / 2, card.u.posToVal(x - left, "x")];
})(cards[%d], %f)"""


def check_dragging(page):
    """What one drags over is shown, in all plots: from left to right in the first, and back in another."""
    page.until("there are samples enough for dragging", "samples.newest.time - samples.times[0] > 25")
    for card, begin, end in [(0, 0.25, 0.75), (4, 0.9, 0.2)]:
        page.value("showInterval(samples.newest.time - 24, samples.newest.time)")
        # A plot is drawn when the browser comes to it.
        page.until("it is drawn", f"Math.abs(cards[{card}].u.scales.x.max - interval()[1]) < 0.01")
        page.value(f"cards[{card}].place.scrollIntoView({{ block: 'center' }})")
        (x, y, a), (to_x, to_y, b) = [page.value(PLACE % (card, part)) for part in (begin, end)]
        page.drag((x, y), (to_x, to_y))
        wanted = sorted([a, b])
        same = "([from, to]) => Math.abs(from - %f) < 0.2 && Math.abs(to - %f) < 0.2" % tuple(wanted)
        got = page.value("interval()")
        assert page.value(f"({same})(interval())"), f"dragged over {wanted}, which shows {got}"
        page.until("all plots show what was dragged over",
                   f"cards.every(({{ u }}) => ({same})([u.scales.x.min, u.scales.x.max]) && u.select.width === 0)")
    page.call("Input.dispatchMouseEvent", type="mouseMoved", x=0, y=0)
    page.value("document.activeElement.blur(), scrollTo(0, 0)")
    page.press("Escape")


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


# A truncation, in the plot that shows them: pixels in its colour where its triangle and its line should be, and
# elsewhere, and how many are told beside it.
EVENT = """(() => {
  const card = cards.find((card) => card.events.length), { ctx, bbox } = card.u, { width, height } = ctx.canvas;
  const x = Math.round(card.u.valToPos(truncated, "x", true)), size = 4 * devicePixelRatio, below = bbox.top + 2 * size;
  const count = (left, top, right, bottom) => countPixels(ctx.canvas, ["--s5"], left, top, right, bottom);
  return { title: card.plot.title, told: Number(card.eventValue.textContent),
    triangle: count(x - size, bbox.top, x + size, below), line: count(x - 2, below, x + 2, height),
    elsewhere: count(0, 0, x - size, height) + count(x + size, 0, width, height) };
})()"""


def check_events(page):
    """A truncation of an undo tablespace has a triangle and a line where it was, in the plot of their sizes."""
    page.until("an undo tablespace is truncated", "cards.some((card) => card.events.length)")
    # Nothing else of that colour is there, and no other truncation. Of twice the size a line is not blurred.
    page.look(1440, 900, 2, "light")
    page.value("window.truncated = cards.find((card) => card.events.length).events.at(-1)[0], true")
    page.value("showInterval(truncated - 4, truncated + 4)")
    begun = time.monotonic()
    while not is_drawn(event := page.value(EVENT)):
        assert time.monotonic() - begun < PATIENCE, f"a truncation is not drawn, or not where it was: {event}"
        time.sleep(0.1)
    page.press("Escape")


def is_drawn(event):
    right = event["title"] == "Undo tablespaces" and event["told"] == 1
    return right and event["triangle"] > 50 and event["line"] > 100 and event["elsewhere"] == 0


# A picture's size, how many colours there are in it, and the plots of which it has no line.
DECODED = """(async () => {
  const picture = await createImageBitmap(pictures[0]), { width, height } = picture;
  const canvas = new OffscreenCanvas(width, height), ctx = canvas.getContext("2d");
  ctx.drawImage(picture, 0, 0);
  const colors = new Set(new Uint32Array(ctx.getImageData(0, 0, width, height).data.buffer)).size;
  const across = width / 3, down = height / Math.ceil(cards.length / 3), head = 48 * devicePixelRatio;
  const missing = cards.filter((card, n) => {
    const left = (n % 3) * across, top = Math.floor(n / 3) * down, names = card.plot.series.map(([, name]) => name);
    return countPixels(canvas, names, left, top + head, left + across, top + down) <= 20;
  });
  return { width, height, colors, missing: missing.map((card) => card.plot.title) };
})()"""


def check_exports(page):
    page.value("window.saved = []; HTMLAnchorElement.prototype.click = function () { saved.push([this.download, this.href]); }; true")
    page.value("""window.pictures = []; ((original) => {
      URL.createObjectURL = (blob) => { pictures.push(blob); return original.call(URL, blob); };
    })(URL.createObjectURL); showInterval(samples.newest.time - 8, samples.newest.time)""")
    page.until("that is drawn", "cards.every(({ u }) => Math.abs(u.scales.x.max - interval()[1]) < 0.01)")
    page.value("byId('png').click(), byId('csv').click(), true")
    page.until("both are there", "saved.length === 2")
    saved = {name.rsplit(".", 1)[1]: url for name, url in page.value("saved")}
    assert saved["png"].startswith("blob:"), saved
    picture = page.value(DECODED)
    assert picture["width"] >= 1000 and picture["height"] >= 700, f"the picture is too small: {picture}"
    assert picture["colors"] > 10 and not picture["missing"], f"the picture is empty: {picture}"
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
        # A click moves the place from which the tabulator goes on.
        check_dragging(page)
        check_statement(page, statement)
        check_colours(page)
        take_pictures(page, folder)
        page.look(1440, 900, 1, "light")
        check_exports(page)
        check_events(page)
        assert not page.complaints, "\n".join(page.complaints)
    finally:
        page.close()
    print(f"The monitor's page works, after {time.monotonic() - begun:.0f} s; pictures of it are in {folder}")


if __name__ == "__main__":
    main()
