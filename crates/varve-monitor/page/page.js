// The page: fetches samples and the state once a second, and draws them. Texts become `textContent`, never
// markup (MON-4).
"use strict";

const HOUR = 3600;
// Where samples are further apart than this, a line has a gap.
const GAP_SECONDS = 5;

const byId = (id) => document.getElementById(id);

function element(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

// ---- samples ----

const samples = { begun: null, next: 0, times: [], newest: null, before: null, apart: 1 };
const cards = PLOTS.map((plot) => ({ plot, data: plot.series.map(() => []), events: [] }));

function forgetSamples(begun) {
  Object.assign(samples, { begun, next: 0, times: [], newest: null, before: null });
  for (const card of cards) {
    card.data = card.plot.series.map(() => []);
    card.events = [];
  }
}

function addSample(columns, row) {
  const at = { time: row[0] };
  columns.forEach((name, n) => { at[name] = row[n + 1]; });
  const apart = samples.newest ? at.time - samples.newest.time : 1;
  // A clock that was set back would draw backwards.
  if (apart <= 0) return;
  if (samples.newest && apart > GAP_SECONDS) {
    samples.times.push(samples.newest.time + 1);
    for (const card of cards) card.data.forEach((values) => values.push(null));
  }
  const was = apart > GAP_SECONDS ? null : samples.newest;
  samples.times.push(at.time);
  for (const card of cards) {
    card.plot.series.forEach(([, , value], n) => card.data[n].push(value(at, was, apart)));
    const event = card.plot.events;
    if (event && was && at[event] > was[event]) card.events.push([at.time, at[event] - was[event]]);
  }
  Object.assign(samples, { before: was, newest: at, apart });
}

function dropOldSamples() {
  const from = samples.newest.time - HOUR;
  let old = 0;
  while (samples.times[old] < from) old++;
  samples.times.splice(0, old);
  for (const card of cards) {
    card.data.forEach((values) => values.splice(0, old));
    card.events = card.events.filter(([time]) => time >= from);
  }
}

async function fetchJson(path) {
  const answer = await fetch(path, { signal: AbortSignal.timeout(10000) });
  if (answer.status === 401) location.reload();
  if (!answer.ok) throw new Error(path + ": " + answer.status);
  return answer.json();
}

async function fetchSamples() {
  const path = (since) => "/api/samples?since=" + since + "&columns=" + COLUMNS.join(",");
  let got = await fetchJson(path(samples.next));
  if (got.begun !== samples.begun) {
    // The server was started again, and counts from the beginning.
    if (samples.next > 0) got = await fetchJson(path(0));
    forgetSamples(got.begun);
  }
  for (const row of got.rows) addSample(got.columns, row);
  samples.next = got.next;
  if (samples.newest) dropOldSamples();
}

// ---- the interval that is shown ----

// `from` and `to` are null while the newest samples are shown.
const view = { seconds: 300, from: null, to: null, paused: false };

function interval() {
  if (view.from !== null) return [view.from, view.to];
  const end = samples.newest ? samples.newest.time : Date.now() / 1000;
  // Not much of the time before the monitor was started.
  const first = Math.min(samples.times[0] ?? end, end - 60);
  return [Math.max(end - view.seconds, first), end];
}

function showInterval(from, to) {
  const first = samples.times[0] ?? to - HOUR;
  const last = samples.newest ? samples.newest.time : to;
  const width = Math.min(Math.max(to - from, 5), Math.max(last - first, 5));
  const begin = Math.min(Math.max(from, first), Math.max(first, last - width));
  Object.assign(view, { from: begin, to: begin + width });
  redraw();
}

function followNewest(seconds) {
  Object.assign(view, { seconds, from: null, to: null });
  setPaused(false);
  redraw();
}

function setPaused(paused) {
  view.paused = paused;
  byId("pause").setAttribute("aria-pressed", String(paused));
  if (paused && view.from === null) [view.from, view.to] = interval();
}

function pan(part) {
  const [from, to] = interval();
  showInterval(from + part * (to - from), to + part * (to - from));
}

function zoom(factor) {
  const [from, to] = interval();
  const half = ((to - from) / 2) * factor, middle = (from + to) / 2;
  showInterval(middle - half, middle + half);
}

// ---- plots ----

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function clock(seconds, withSeconds) {
  const parts = { hour: "2-digit", minute: "2-digit", second: withSeconds ? "2-digit" : undefined, hour12: false };
  return new Date(seconds * 1000).toLocaleTimeString([], parts);
}

function rangeOf(plot) {
  return (u, min, max) => {
    if (plot.top) return [Math.max(0, (min ?? plot.top) - 0.1 * (plot.top - (min ?? 0)) - 0.05), plot.top];
    return [0, max > 0 ? max * 1.08 : 1];
  };
}

// Between two times of an axis. Those of less than a minute have seconds, and take more room.
function timeSpace(u, axis, from, to, pixels) {
  const halfMinute = (30 * pixels) / (to - from);
  return halfMinute >= 64 ? 64 : Math.max(44, halfMinute + 1);
}

function axesOf(plot, scales) {
  const text = { stroke: color("--muted"), font: "11px system-ui, sans-serif" };
  const lines = { stroke: color("--grid"), width: 1 };
  const x = { ...text, grid: { show: false }, ticks: { show: false }, space: timeSpace, size: 24,
    values: (u, splits, n, space, step) => splits.map((s) => clock(s, step < 60)) };
  const y = scales.map((unit, n) => ({ ...text, scale: unit, side: n ? 1 : 3, size: 58, gap: 4,
    grid: { ...lines, show: n === 0 }, ticks: { show: false }, space: 32, incrs: UNITS[unit].steps,
    values: (u, splits) => splits.map((v) => UNITS[unit].axis(v)) }));
  return [x, ...y];
}

function drawEvents(card) {
  return (u) => {
    const { ctx, bbox } = u;
    ctx.save();
    ctx.strokeStyle = ctx.fillStyle = color("--s5");
    ctx.lineWidth = devicePixelRatio;
    for (const [time] of card.events) {
      const x = Math.round(u.valToPos(time, "x", true));
      if (x < bbox.left || x > bbox.left + bbox.width) continue;
      ctx.setLineDash([3 * devicePixelRatio, 3 * devicePixelRatio]);
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      const size = 4 * devicePixelRatio;
      ctx.beginPath();
      ctx.moveTo(x - size, bbox.top);
      ctx.lineTo(x + size, bbox.top);
      ctx.lineTo(x, bbox.top + 1.6 * size);
      ctx.fill();
    }
    ctx.restore();
  };
}

function makePlot(card) {
  const { plot } = card;
  const scales = [...new Set(plot.series.map((series) => series[3] || plot.unit))];
  const series = plot.series.map(([label, name, , unit, dashed], n) => ({
    label, stroke: color(name), width: dashed ? 1.5 : 1.75, scale: unit || plot.unit,
    dash: dashed ? [6, 4] : undefined,
    fill: plot.area && n === 0 ? color(name) + "2b" : undefined,
    points: { show: false },
  }));
  const options = {
    width: card.place.clientWidth, height: 170,
    padding: [8, scales.length > 1 ? 0 : 20, 0, 0],
    legend: { show: false },
    cursor: { sync: { key: "time" }, drag: { x: true, y: false, setScale: false }, points: { size: 6 },
      bind: { dblclick: () => null } },
    scales: { x: { time: true, range: interval }, ...Object.fromEntries(scales.map((unit) => [unit, { range: rangeOf(plot) }])) },
    axes: axesOf(plot, scales),
    series: [{}, ...series],
    hooks: {
      setCursor: [(u) => writeLegend(card, u.cursor.idx)],
      setSelect: [(u) => select(u)],
      draw: plot.events ? [drawEvents(card)] : [],
    },
  };
  card.u = new uPlot(options, [samples.times, ...card.data], card.place);
}

function select(u) {
  if (u.select.width < 3) return;
  const from = u.posToVal(u.select.left, "x"), to = u.posToVal(u.select.left + u.select.width, "x");
  u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
  showInterval(from, to);
}

function makeCards() {
  for (const card of cards) {
    const { plot } = card;
    const box = element("article", "card");
    const head = element("div", "head");
    const save = element("button", "save", "PNG");
    save.type = "button";
    save.title = save.ariaLabel = plot.title + " as a picture";
    save.onclick = () => savePicture([card], plot.title);
    head.append(element("h2", "", plot.title), save);
    card.legend = element("ul", "legend");
    card.values = plot.series.map(([label, name, , , dashed]) => {
      const item = element("li"), key = element("span", dashed ? "key dashed" : "key"), value = element("span", "value");
      key.style[dashed ? "borderTopColor" : "background"] = "var(" + name + ")";
      item.append(key, label, value);
      card.legend.append(item);
      return value;
    });
    if (plot.events) {
      const item = element("li", "", "▼ " + plot.eventName);
      card.eventValue = item.appendChild(element("span", "value"));
      card.legend.append(item);
    }
    card.place = element("div", "plot");
    card.place.tabIndex = 0;
    card.place.setAttribute("role", "img");
    card.place.ondblclick = () => followNewest(view.seconds);
    box.append(head, card.legend, card.place);
    byId("plots").append(box);
    makePlot(card);
  }
  new ResizeObserver(() => cards.forEach((card) => {
    if (card.u.width !== card.place.clientWidth) card.u.setSize({ width: card.place.clientWidth, height: 170 });
  })).observe(byId("plots"));
}

// The values at a sample, the newest one without.
function writeLegend(card, at) {
  const n = at ?? samples.times.length - 1;
  const texts = card.plot.series.map(([label, , , unit], s) => {
    const value = card.data[s][n];
    const text = value === null || value === undefined ? "–" : UNITS[unit || card.plot.unit].text(value);
    if (card.values[s].textContent !== text) card.values[s].textContent = text;
    return label + " " + text;
  });
  if (card.eventValue) {
    const [from, to] = interval();
    const shown = card.events.filter(([time]) => time >= from && time <= to);
    card.eventValue.textContent = String(shown.reduce((sum, [, many]) => sum + many, 0));
  }
  // For those who can't see it; the newest values only.
  if (at === null || at === undefined) card.place.ariaLabel = card.plot.title + ": " + texts.join(", ");
}

function redraw() {
  for (const button of document.querySelectorAll("[data-minutes]")) {
    const isShown = view.from === null && view.seconds === 60 * Number(button.dataset.minutes);
    button.setAttribute("aria-pressed", String(isShown));
  }
  for (const card of cards) {
    card.u.setData([samples.times, ...card.data]);
    if (card.u.cursor.idx === null || card.u.cursor.left < 0) writeLegend(card, null);
  }
}

// ---- what is now ----

function writeTiles() {
  if (!samples.newest) return;
  byId("tiles").replaceChildren(...TILES.map(([label, unit, value]) => {
    const tile = element("div"), number = value(samples.newest, samples.before, samples.apart);
    tile.append(element("dt", "", label), element("dd", "", number === null ? "–" : UNITS[unit].text(number)));
    return tile;
  }));
}

const LEVELS = { bad: "Stands still", warning: "Costs", note: "Note", well: "Well" };

function writeState(state) {
  byId("database").textContent = state.database;
  byId("database").title = state.database;
  byId("verdict").replaceChildren(...state.findings.map(({ level, text }) => {
    const line = element("p", "finding");
    line.dataset.level = level;
    line.append(element("b", "", LEVELS[level]), text);
    return line;
  }));
  writeTransactions(state);
  writeRows("undo", state.undo_tablespaces.map((space) => [
    [space.file], [space.state], [bytesText(space.bytes), "n"], [countText(space.used_pages), "n"],
    [countText(space.history), "n"], [countText(space.truncations), "n"]]), "Undo is in the system tablespace");
  writeRows("waits", state.lock_waits.map((wait) => [
    [wait.waiter], [waitText(wait.seconds), "n"], [wait.wants, "wide"], [wait.holders.join(", ")]]), "Nobody waits");
}

// The first seconds of a wait matter.
const waitText = (seconds) => (seconds < 10 ? seconds.toFixed(1) + " s" : secondsText(seconds));

function writeTransactions(state) {
  const more = state.transactions_running - state.transactions.length;
  byId("more").textContent = [more > 0 ? countText(more) + " more" : "",
    state.has_statements ? "" : "Statements are shown to those who have the token"].filter(Boolean).join(" · ");
  byId("transactions").classList.toggle("bare", !state.has_statements);
  writeRows("transactions", state.transactions.map((trx) => [
    [trx.name], stateOf(trx), [trx.seconds === null ? "–" : secondsText(trx.seconds), "n"],
    pinned(trx.view && trx.view.pinned_history, countText), pinned(trx.view && trx.view.pinned_undo_bytes, bytesText),
    pinned(trx.view && trx.view.pinned_bytes, bytesText),
    [viewText(trx.view)], amount(trx.changes), amount(trx.rows_locked), amount(trx.tables_locked),
    [trx.isolation], [trx.statement ?? "", "statement"]]), "None runs");
}

function stateOf(trx) {
  if (trx.waited !== null) return [trx.state + ", " + waitText(trx.waited), "waits"];
  return [trx.idle === null ? trx.state : "idle, " + secondsText(trx.idle)];
}

function viewText(view) {
  if (!view) return "none";
  return view.in_history_store ? "in the history store" : "purge waits for it";
}

const pinned = (value, text) => (value ? [text(value), "n pins"] : ["–", "n none"]);
const amount = (value) => (value ? [countText(value), "n"] : ["–", "n none"]);

// Cells stay the same elements, so that a selection in them and a focus near them stay, too.
function writeRows(id, rows, none) {
  const body = byId(id).tBodies[0];
  const wanted = rows.length ? rows : [[[none, "none"]]];
  while (body.rows.length > wanted.length) body.deleteRow(-1);
  wanted.forEach((cells, n) => {
    const line = body.rows[n] ?? body.insertRow();
    while (line.cells.length > cells.length) line.deleteCell(-1);
    cells.forEach(([text, className = ""], c) => {
      const cell = line.cells[c] ?? line.insertCell();
      cell.colSpan = cells.length > 1 ? 1 : 99;
      if (cell.className !== className) cell.className = className;
      // A long one scrolls in a box of its own.
      const place = className === "statement" ? cell.firstElementChild ?? cell.appendChild(element("div")) : cell;
      if (place.textContent !== text) place.textContent = text;
    });
  });
}

// ---- export ----

function download(url, name) {
  const link = element("a");
  link.href = url;
  link.download = name;
  link.click();
}

function fileTime() {
  const [from] = interval();
  return new Date(from * 1000).toISOString().slice(0, 19).replaceAll(":", "-");
}

// Titles, legends and plots, in rows of at most three.
function savePicture(shown, name) {
  const ratio = devicePixelRatio, across = Math.min(3, shown.length);
  const width = Math.max(...shown.map((card) => card.u.ctx.canvas.width)) + 24 * ratio;
  const height = Math.max(...shown.map((card) => card.u.ctx.canvas.height)) + 52 * ratio;
  const canvas = element("canvas");
  canvas.width = across * width;
  canvas.height = Math.ceil(shown.length / across) * height;
  const ctx = canvas.getContext("2d");
  ctx.fillStyle = color("--card");
  ctx.fillRect(0, 0, canvas.width, canvas.height);
  shown.forEach((card, n) => {
    const left = (n % across) * width + 12 * ratio, top = Math.floor(n / across) * height;
    ctx.fillStyle = color("--text");
    ctx.font = "600 " + 14 * ratio + "px system-ui, sans-serif";
    ctx.fillText(card.plot.title, left, top + 22 * ratio);
    ctx.font = 12 * ratio + "px system-ui, sans-serif";
    let x = left;
    card.plot.series.forEach(([label, line], s) => {
      ctx.fillStyle = color(line);
      ctx.fillRect(x, top + 37 * ratio, 12 * ratio, 3 * ratio);
      ctx.fillStyle = color("--muted");
      const text = label + " " + card.values[s].textContent;
      ctx.fillText(text, x + 17 * ratio, top + 42 * ratio);
      x += ctx.measureText(text).width + 32 * ratio;
    });
    ctx.drawImage(card.u.ctx.canvas, left, top + 48 * ratio);
  });
  canvas.toBlob((blob) => {
    const url = URL.createObjectURL(blob);
    download(url, "varve " + name + " " + fileTime() + ".png");
    setTimeout(() => URL.revokeObjectURL(url), 10000);
  });
}

// ---- keys, and the second hand ----

const KEYS = {
  ArrowLeft: () => pan(-0.2),
  ArrowRight: () => pan(0.2),
  "+": () => zoom(0.5),
  "=": () => zoom(0.5),
  "-": () => zoom(2),
  Escape: () => followNewest(view.seconds),
  1: () => followNewest(300),
  2: () => followNewest(900),
  3: () => followNewest(3600),
  p: () => togglePause(),
};

function togglePause() {
  if (view.paused) return followNewest(view.seconds);
  setPaused(true);
  redraw();
}

function listen() {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !Object.hasOwn(KEYS, event.key)) return;
    // There the arrows scroll, if there is anything to scroll.
    const box = event.target.closest(".scroll");
    if (box && box.scrollWidth > box.clientWidth && event.key.startsWith("Arrow")) return;
    KEYS[event.key]();
    event.preventDefault();
  });
  for (const button of document.querySelectorAll("[data-minutes]"))
    button.onclick = () => followNewest(60 * Number(button.dataset.minutes));
  byId("pause").onclick = togglePause;
  byId("csv").onclick = () => {
    const [from, to] = interval();
    download("/api/samples.csv?from=" + from.toFixed(3) + "&to=" + to.toFixed(3), "varve " + fileTime() + ".csv");
  };
  byId("png").onclick = () => savePicture(cards, "plots");
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    for (const card of cards) {
      card.u.destroy();
      makePlot(card);
    }
  });
}

function writeLive(state, text) {
  const place = byId("live");
  place.dataset.state = state;
  // A change is read out loud, so nothing is written that stays.
  if (place.textContent !== text) place.textContent = text;
}

async function everySecond() {
  try {
    if (!document.hidden) {
      await fetchSamples();
      writeState(await fetchJson("/api/state"));
      writeTiles();
      redraw();
      writeLive(view.from === null ? "live" : "still", view.from === null ? "live" : "standing still");
    }
  } catch (error) {
    const since = samples.newest ? " since " + clock(samples.newest.time, true) : "";
    writeLive("lost", "no answer" + since);
    console.warn(error.message);
  }
  setTimeout(everySecond, 1000);
}

makeCards();
listen();
everySecond();
