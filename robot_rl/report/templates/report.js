// Draws the diagrams of one run from the JSON block of the page, in plain SVG. What the page holds is the whole of it:
// nothing is fetched. <html> tells how it went: data-charts counts the diagrams drawn, data-errors the scripts' errors.
const root = document.documentElement;
root.dataset.errors = "0";
addEventListener("error", (event) => {
  root.dataset.errors = String(Number(root.dataset.errors) + 1);
  root.dataset.error = String(event.message);
});

const { axes, charts } = JSON.parse(document.getElementById("data").textContent);
const AXES = {
  iteration: { unit: "iteration", text: (v) => `iteration ${Math.round(v)}` },
  env_steps: { unit: "steps", text: (v) => `${short(v)} steps` },
  time_s: { unit: "min:s", text: (v) => clock(v) },
};
const state = { axis: Object.keys(axes)[0] || "iteration", smooth: true, row: null };
const views = [];

// The vertical range: all values, unless a few lie so far out that they would flatten the rest.
function range(chart, rows) {
  const all = rows.flat().filter((v) => v !== null && (!chart.log || v > 0)).sort((a, b) => a - b);
  if (!all.length) return null;
  const at = (q) => all[Math.round(q * (all.length - 1))];
  let low = all[0];
  let high = all[all.length - 1];
  if (chart.kind === "line" && !chart.log && all.length > 20) {
    const spread = at(0.98) - at(0.02);
    if (spread > 0 && high - at(0.98) > 2 * spread) high = at(0.98) + 0.25 * spread;
    if (spread > 0 && at(0.02) - low > 2 * spread) low = at(0.02) - 0.25 * spread;
  }
  const cut = all.filter((v) => v < low || v > high).length;
  if (chart.target) [low, high] = [Math.min(low, chart.target[0]), Math.max(high, chart.target[0] * 1.1)];
  if (chart.log) return low === high ? { low: low / 2, high: high * 2, cut } : { low: low / 1.15, high: high * 1.15, cut };
  if (chart.kind === "stack" || chart.zero) [low, high] = [Math.min(low, 0), Math.max(high, 0)];
  if (chart.top !== null) high = chart.top;
  if (low === high) [low, high] = low === 0 ? [0, 1] : [low - Math.abs(low) / 2, high + Math.abs(high) / 2];
  const pad = (high - low) * 0.06;
  if (low !== 0) low -= pad;
  if (high !== 0 && chart.top === null) high += pad;
  return { low, high, cut };
}

function smooth(values) {
  const half = Math.round(values.length / 60);
  if (!state.smooth || half < 1) return values;
  return values.map((value, i) => {
    if (value === null) return null;
    const near = values.slice(Math.max(0, i - half), i + half + 1).filter((v) => v !== null);
    return near.reduce((a, b) => a + b, 0) / near.length;
  });
}

// Drawing ------------------------------------------------------------------------------------------------------------

const lonely = (xs, ys, i) =>
  xs[i] !== null && ys[i] !== null && (ys[i - 1] ?? null) === null && (ys[i + 1] ?? null) === null;

function stacked(chart) {
  const base = chart.series[0].values.map(() => 0);
  return chart.series.map((series) => {
    const low = [...base];
    const gap = (v) => v === null;
    const high = series.values.map((v, i) => (chart.series.every((s) => gap(s.values[i])) ? null : (base[i] += v ?? 0)));
    return { low: high.map((v, i) => (v === null ? null : low[i])), high };
  });
}

function plot(view) {
  const { chart, box } = view;
  box.replaceChildren();
  view.marks = [];
  const width = box.clientWidth;
  const height = chart.small ? 118 : Math.max(170, Math.min(230, width * 0.46));
  const bands = chart.kind === "stack" ? stacked(chart) : null;
  const limits = range(chart, bands ? bands.map((b) => b.high) : chart.series.map((s) => s.values));
  const remarks = [chart.note];
  if (chart.target) remarks.push(`dashed: ${chart.target[1]} ${short(chart.target[0])}`);
  if (limits && limits.cut) remarks.push(`${limits.cut} off the scale`);
  view.aside.textContent = remarks.filter(Boolean).join(" · ");
  view.aside.hidden = !view.aside.textContent;
  const svg = draw(box, "svg", { height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
  if (!limits) return void draw(svg, "text", { x: width / 2, y: height / 2, "text-anchor": "middle" }, "no finite value");
  const frame = axesOf(view, svg, limits, width, height);
  const clip = `clip${views.indexOf(view)}`;
  const rect = draw(draw(svg, "clipPath", { id: clip }), "rect", { x: frame.left - 4, y: frame.top - 2 });
  rect.setAttribute("width", frame.right - frame.left + 8);
  rect.setAttribute("height", frame.bottom - frame.top + 4);
  const layer = draw(svg, "g", { "clip-path": `url(#${clip})` });
  const { xs, y } = frame;
  chart.series.forEach((series, s) => {
    const group = draw(layer, "g", { class: `tone${series.tone}` });
    if (bands) return area(group, xs, bands[s], y);
    const raw = series.values.map((v) => (v === null || (chart.log && v <= 0) ? null : y(v)));
    const calm = smooth(series.values).map((v) => (v === null || (chart.log && v <= 0) ? null : y(v)));
    if (calm.some((v, i) => v !== raw[i])) draw(group, "path", { class: "raw", d: path(xs, raw) });
    draw(group, "path", { class: "line", d: path(xs, calm) });
    calm.forEach((v, i) => lonely(xs, calm, i) && draw(group, "circle", { class: "dot", cx: xs[i], cy: v, r: 2.5 }));
    view.marks.push({ ys: calm, tone: series.tone });
  });
  Object.assign(view, { frame, over: draw(svg, "g", {}) });
}

function area(group, xs, band, y) {
  const runs = [[]];
  xs.forEach((x, i) => (x === null || band.high[i] === null ? runs.push([]) : runs[runs.length - 1].push(i)));
  for (const run of runs.filter((r) => r.length)) {
    // A single row has no width: it is drawn three pixels to either side.
    const spread = run.length === 1 ? [-3, 3] : null;
    const at = spread ? spread.map((d) => [xs[run[0]] + d, run[0]]) : run.map((i) => [xs[i], i]);
    const up = at.map(([x, i]) => `${x.toFixed(1)} ${y(band.high[i]).toFixed(1)}`);
    const down = at.map(([x, i]) => `${x.toFixed(1)} ${y(band.low[i]).toFixed(1)}`).reverse();
    draw(group, "path", { class: "area", d: `M${[...up, ...down].join("L")}Z` });
  }
}

function axesOf(view, svg, limits, width, height) {
  const { chart } = view;
  const marks = chart.log ? logTicks(limits.low, limits.high) : ticks(limits.low, limits.high, chart.small ? 3 : 4);
  const left = 10 + 6.3 * Math.max(...marks.map((v) => short(v).length));
  const frame = { left, right: width - 8, top: 8, bottom: height - 22 };
  const warp = chart.log ? Math.log : (v) => v;
  const [a, b] = [warp(limits.low), warp(limits.high)];
  frame.y = (v) => frame.bottom - ((warp(Math.max(v, chart.log ? 1e-30 : -Infinity)) - a) / (b - a)) * (frame.bottom - frame.top);
  for (const v of marks) {
    draw(svg, "line", { class: v === 0 ? "axis" : "grid", x1: left, x2: frame.right, y1: frame.y(v), y2: frame.y(v) });
    draw(svg, "text", { x: left - 6, y: frame.y(v) + 4, "text-anchor": "end" }, short(v));
  }
  const values = axes[state.axis];
  const finite = values.filter((v) => v !== null);
  let [first, last] = [Math.min(...finite), Math.max(...finite)];
  if (first > 0 && first < 0.05 * last) first = 0;
  if (first === last) [first, last] = [first - 1, last + 1];
  const x = (v) => left + ((v - first) / (last - first)) * (frame.right - left);
  frame.xs = values.map((v) => (v === null ? null : x(v)));
  label(svg, frame, { first, last, x, height });
  draw(svg, "line", { class: "axis", x1: left, x2: frame.right, y1: frame.bottom, y2: frame.bottom });
  if (chart.target) {
    const at = frame.y(chart.target[0]);
    draw(svg, "line", { class: "target", x1: left, x2: frame.right, y1: at, y2: at });
  }
  return frame;
}

// The horizontal axis: as many figures as fit, and its unit at the right end where two figures remain beside it.
function label(svg, frame, { first, last, x, height }) {
  const time = state.axis === "time_s";
  const count = Math.max(3, Math.floor((frame.right - frame.left) / 85));
  const stops = (time ? timeTicks(first, last, count) : ticks(first, last, count, [1, 2, 5, 10]))
    .filter((v) => state.axis !== "iteration" || Number.isInteger(v))
    .map((v) => ({ x: x(v), text: time ? clock(v) : short(v) }));
  const { unit } = AXES[state.axis];
  const free = frame.right - 6.5 * unit.length - 8;
  const beside = stops.filter((s) => s.x + 3.3 * s.text.length < free);
  const shown = beside.length > 1 || stops.length < 2 ? beside : stops;
  if (shown === beside) draw(svg, "text", { x: frame.right, y: height - 6, "text-anchor": "end" }, unit);
  for (const s of stops) draw(svg, "line", { class: "axis", x1: s.x, x2: s.x, y1: frame.bottom, y2: frame.bottom + 4 });
  for (const s of shown) {
    const place = Math.min(s.x, frame.right + 8 - 3.3 * s.text.length);
    draw(svg, "text", { x: place, y: height - 6, "text-anchor": "middle" }, s.text);
  }
}

// Reading values -----------------------------------------------------------------------------------------------------

function lastRow(series) {
  for (let i = series.values.length - 1; i >= 0; i--) if (series.values[i] !== null) return i;
  return 0;
}

function read(view) {
  const { chart } = view;
  const value = (series) => short(series.values[state.row ?? lastRow(series)] ?? null);
  if (view.read) view.read.textContent = value(chart.series[0]);
  chart.series.forEach((series, s) => view.legend[s] && (view.legend[s].textContent = value(series)));
  if (!view.over || !view.over.isConnected) return;
  view.over.replaceChildren();
  const x = state.row === null ? null : view.frame.xs[state.row];
  if (x === null || x === undefined) return;
  draw(view.over, "line", { class: "cross", x1: x, x2: x, y1: view.frame.top, y2: view.frame.bottom });
  for (const mark of view.marks) {
    const y = mark.ys[state.row];
    if (y !== null && y >= view.frame.top - 2 && y <= view.frame.bottom + 2)
      draw(view.over, "circle", { class: `here tone${mark.tone}`, cx: x, cy: y, r: 4 });
  }
}

let pending = 0;
function point(row) {
  state.row = row;
  if (pending) return;
  pending = requestAnimationFrame(() => {
    pending = 0;
    views.forEach(read);
    where();
  });
}

function where() {
  const keys = Object.keys(axes);
  const rows = keys.length ? axes[keys[0]].length : 0;
  const row = state.row ?? rows - 1;
  const place = keys.filter((key) => axes[key][row] !== null).map((key) => AXES[key].text(axes[key][row]));
  document.getElementById("where").textContent = (state.row === null ? "last: " : "") + place.join(" · ");
}

function nearest(view, clientX) {
  const x = clientX - view.box.getBoundingClientRect().left;
  let best = 0;
  view.frame.xs.forEach((v, i) => {
    if (v !== null && Math.abs(v - x) < Math.abs((view.frame.xs[best] ?? Infinity) - x)) best = i;
  });
  return best;
}

function listen(view) {
  const { box } = view;
  const move = (event) => view.frame && point(nearest(view, event.clientX));
  box.addEventListener("pointermove", move);
  box.addEventListener("pointerdown", move);
  box.addEventListener("pointerleave", () => point(null));
  box.addEventListener("blur", () => point(null));
  box.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const rows = axes[state.axis].length;
    point(Math.max(0, Math.min(rows - 1, (state.row ?? rows - 1) + step)));
  });
}

// Start --------------------------------------------------------------------------------------------------------------

function make(figure) {
  const chart = charts[Number(figure.dataset.chart)];
  const box = figure.querySelector(".plot");
  const view = { chart, box, aside: figure.querySelector(".aside"), read: figure.querySelector(".read"), marks: [] };
  view.legend = [...figure.querySelectorAll(".legend output")];
  views.push(view);
  listen(view);
  return view;
}

function all() {
  views.forEach((view) => {
    plot(view);
    read(view);
  });
  where();
  root.dataset.charts = String(views.length);
}

function choose(group, apply) {
  const buttons = [...document.querySelectorAll(`[data-${group}]`)];
  for (const button of buttons) {
    button.addEventListener("click", () => {
      if (buttons.length > 1) buttons.forEach((other) => other.setAttribute("aria-pressed", String(other === button)));
      apply(button);
    });
  }
}

function controls() {
  choose("axis", (button) => {
    state.axis = button.dataset.axis;
    all();
  });
  choose("smooth", (button) => {
    state.smooth = !state.smooth;
    button.setAttribute("aria-pressed", String(state.smooth));
    all();
  });
  choose("scheme", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  });
}

document.querySelectorAll("[data-chart]").forEach(make);
controls();
all();
let widthBefore = innerWidth;
addEventListener("resize", () => {
  if (innerWidth !== widthBefore) all();
  widthBefore = innerWidth;
});
const film = document.querySelector("video");
if (film && !matchMedia("(prefers-reduced-motion: reduce)").matches) film.play().catch(() => {});
