"use strict";
// The interactive diagrams of the project's pages, in plain SVG. A page has this file before its own script, and perhaps
// an element [data-scheme] that switches its colors. <html> tells how it went: data-errors counts the scripts' errors.
const root = document.documentElement;
root.dataset.errors = "0";
for (const kind of ["error", "unhandledrejection"])
  addEventListener(kind, (event) => {
    root.dataset.errors = String(Number(root.dataset.errors) + 1);
    root.dataset.error = String(event.message ?? event.reason);
  });

const AXES = {
  iteration: { unit: "iteration", text: (v) => `iteration ${Math.round(v)}` },
  env_steps: { unit: "steps", text: (v) => `${short(v)} steps` },
  time_ms: { unit: "ms", text: (v) => `${short(v)} ms` },
  time_s: { unit: "h:min:s", text: (v) => clock(v) },
  own: { unit: null, text: (v) => short(v) },
};

// Numbers, scales and paths of the diagrams on the project's pages, which have this file before their own script.

// Numbers ------------------------------------------------------------------------------------------------------------

function short(value) {
  if (value === null || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  let text;
  if (size === 0) text = "0";
  else if (size >= 1e9) text = trim(value / 1e9) + " G";
  else if (size >= 1e6) text = trim(value / 1e6) + " M";
  else if (size >= 1e4) text = trim(value / 1e3) + " k";
  else if (size >= 1e-3) text = trim(value);
  else text = value.toExponential(1).replace(".0e", "e").replace("e-", "e−");
  return text.replace(/^-/, "−");
}

function trim(value) {
  const size = Math.abs(value);
  const digits = size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : size >= 0.1 ? 3 : 4;
  return value.toFixed(digits).replace(/(\.\d*?)0+$/, "$1").replace(/\.$/, "");
}

// Texts of the values of an axis, with as many digits as tell them apart.
function labels(values) {
  let texts = values.map(short);
  for (let digits = 3; new Set(texts).size < texts.length && digits < 16; digits++)
    texts = values.map((value) => String(+value.toPrecision(digits)).replace(/^-/, "−"));
  return texts;
}

function clock(seconds) {
  const s = Math.round(seconds);
  const pad = (n) => String(n).padStart(2, "0");
  const hours = Math.floor(s / 3600);
  const minutes = Math.floor(s / 60) % 60;
  return hours ? `${hours}:${pad(minutes)}:${pad(s % 60)}` : `${minutes}:${pad(s % 60)}`;
}

// Scales -------------------------------------------------------------------------------------------------------------

// About count round values of a range, three or more.
function ticks(low, high, count, steps = [1, 2, 2.5, 5, 10]) {
  if (!(high > low)) return [low];
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * steps.find((s) => s * power >= rough * 0.999);
  const out = [];
  for (let i = Math.ceil(low / step - 1e-6); i * step <= high + step * 1e-6; i++) out.push(+(i * step).toPrecision(12));
  return out.length < 3 ? ticks(low, high, count + 1, steps) : out;
}

function timeTicks(low, high, count) {
  const step = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400].find(
    (s) => (high - low) / s <= count,
  );
  if (!step) return ticks(low, high, count);
  const out = [];
  for (let v = Math.ceil(low / step) * step; v <= high; v += step) out.push(v);
  return out;
}

function logTicks(low, high) {
  let out = [];
  for (const within of [[1], [1, 3], [1, 1.5, 2, 3, 5, 7]]) {
    if (out.length > 2) break;
    out = [];
    for (let p = Math.floor(Math.log10(low)); p <= Math.ceil(Math.log10(high)); p++)
      out.push(...within.map((m) => +(m * 10 ** p).toPrecision(3)).filter((v) => v >= low * 0.999 && v <= high * 1.001));
  }
  return out.length ? out : [low];
}

// Parts of a drawing ------------------------------------------------------------------------------------------------------------

function draw(parent, name, attributes, text) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  parent.appendChild(node);
  return node;
}

function path(xs, ys) {
  let out = "";
  let pen = "M";
  xs.forEach((x, i) => {
    if (x === null || ys[i] === null) pen = "M";
    else {
      out += `${pen}${x.toFixed(1)} ${ys[i].toFixed(1)}`;
      pen = "L";
    }
  });
  return out;
}

// Of the space between two lines, a part for each run of places that both have.
function area(xs, lows, highs) {
  let out = "";
  let run = [];
  for (let i = 0; i <= xs.length; i++) {
    if (i < xs.length && xs[i] !== null && lows[i] !== null && highs[i] !== null) {
      run.push([xs[i], i]);
      continue;
    }
    // A single place has no width: it is drawn three pixels to either side.
    if (run.length === 1) run = [-3, 3].map((d) => [run[0][0] + d, run[0][1]]);
    const edge = (ys) => run.map(([x, k]) => `${x.toFixed(1)} ${ys[k].toFixed(1)}`);
    if (run.length) out += `M${[...edge(highs), ...edge(lows).reverse()].join("L")}Z`;
    run = [];
  }
  return out;
}

// Means over neighbors.
function calm(values) {
  const half = Math.round(values.length / 60);
  if (half < 1) return values;
  return values.map((value, i) => {
    if (value === null) return null;
    const near = values.slice(Math.max(0, i - half), i + half + 1).filter((v) => v !== null);
    return near.reduce((a, b) => a + b, 0) / near.length;
  });
}

// The index of the value that is the nearest to x; -1: there is none.
function nearest(xs, x) {
  let best = -1;
  xs.forEach((v, i) => {
    if (v !== null && (best < 0 || Math.abs(v - x) < Math.abs(xs[best] - x))) best = i;
  });
  return best;
}

// A diagram --------------------------------------------------------------------------------------------------------

class Diagram {
  static count = 0;

  // figure has a .plot to draw in and an .aside for remarks; onPoint(x): the reading point moves there, null: nowhere.
  constructor(figure, onPoint) {
    Object.assign(this, { box: figure.querySelector(".plot"), aside: figure.querySelector(".aside"), x: null });
    this.clip = `clip${Diagram.count++}`;
    for (const kind of ["pointermove", "pointerdown"])
      this.box.addEventListener(kind, (event) => this.frame && onPoint(this.at(event.clientX)));
    for (const kind of ["pointerleave", "blur"]) this.box.addEventListener(kind, () => onPoint(null));
    this.box.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!step || !this.frame) return;
      event.preventDefault();
      const xs = this.spec.curves[0].x.filter((v) => v !== null);
      const i = this.x === null ? xs.length - 1 : nearest(xs, this.x);
      onPoint(xs[Math.max(0, Math.min(xs.length - 1, i + step))]);
    });
    new ResizeObserver(() => requestAnimationFrame(() => this.box.clientWidth !== this.width && this.paint())).observe(this.box);
  }

  // spec: {curves, axis, kind, zero, log, target, top, small, dots, most, note, smooth, raw}. A curve is {tone, x, y}, with
  // low and high for a band around it; of kind "stack" its band alone is drawn. raw: what is smoothed is seen behind.
  show(spec) {
    const { kind, smooth, raw } = spec;
    const smoothed = (curve) => {
      const part = (name) => curve[name] && { [name]: calm(curve[name]) };
      const own = { ...curve, ...part("y"), ...part("low"), ...part("high") };
      return raw && own.y !== curve.y ? { ...own, raw: curve.y } : own;
    };
    this.spec = { ...spec, curves: smooth && kind !== "stack" ? spec.curves.map(smoothed) : spec.curves };
    this.paint();
  }

  isShown(v) {
    return v !== null && v !== undefined && (!this.spec.log || v > 0);
  }

  paint() {
    const { box, spec } = this;
    if (!spec) return;
    box.replaceChildren();
    this.frame = null;
    const width = (this.width = box.clientWidth);
    if (width < 80) return; // Hidden, or with less room than its figures need; it is painted when it gets more.
    const height = spec.small ? 118 : Math.max(170, Math.min(spec.most, width * 0.46));
    const limits = this.limits();
    const target = spec.target && `dashed: ${spec.target[1]} ${short(spec.target[0])}`;
    this.aside.textContent = [spec.note, target, limits?.cut && `${limits.cut} off the scale`].filter(Boolean).join(" · ");
    this.aside.hidden = !this.aside.textContent;
    const svg = draw(box, "svg", { height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
    if (!limits) return void draw(svg, "text", { x: width / 2, y: height / 2, "text-anchor": "middle" }, "no finite value");
    const { left, right, top, bottom } = (this.frame = this.axes(svg, limits, width, height));
    const size = { x: left - 4, y: top - 2, width: right - left + 8, height: bottom - top + 4 };
    draw(draw(svg, "clipPath", { id: this.clip }), "rect", size);
    this.lines(draw(svg, "g", { "clip-path": `url(#${this.clip})` }));
    this.over = draw(svg, "g", {});
  }

  lines(layer) {
    const { frame, spec } = this;
    const y = (v) => (this.isShown(v) ? frame.y(v) : null);
    const curves = spec.curves.map((c) => ({ ...c, group: draw(layer, "g", { class: `tone${c.tone}` }), xs: c.x.map(frame.x) }));
    for (const { group, xs, low, high } of curves) {
      const d = low && area(xs, low.map(y), high.map(y));
      if (d) draw(group, "path", { class: spec.kind === "stack" ? "area" : "band", d });
    }
    if (spec.kind === "stack") return;
    // The first curve is on top.
    for (const { group, xs, raw, dashed, y: values } of curves.reverse()) {
      const ys = values.map(y);
      layer.append(group);
      if (dashed) {
        // Each value holds until the next.
        const held = path(xs.flatMap((x, i) => [x, xs[i + 1] ?? x]), ys.flatMap((v) => [v, v]));
        draw(group, "path", { class: "target", d: held });
        continue;
      }
      if (raw) draw(group, "path", { class: "raw", d: path(xs, raw.map(y)) });
      draw(group, "path", { class: "line", d: path(xs, ys) });
      const isAlone = (i) => xs[i] !== null && ys[i] !== null && (ys[i - 1] ?? null) === null && (ys[i + 1] ?? null) === null;
      ys.forEach((v, i) => (isAlone(i) || (spec.dots && xs[i] !== null && v !== null)) && draw(group, "circle", { class: "dot", cx: xs[i], cy: v, r: 2.5 }));
    }
  }

  // The vertical range: all values, unless a few lie so far out that they would flatten the rest.
  limits() {
    const { curves, kind, zero, log, target, top } = this.spec;
    const ys = curves.flatMap((c) => c.raw ?? c.y).filter((v) => this.isShown(v));
    const ends = curves.flatMap((c) => [...(c.low ?? []), ...(c.high ?? [])]).filter((v) => this.isShown(v));
    const all = [...ys, ...ends].sort((a, b) => a - b);
    if (!ys.length) return null;
    const at = (q) => all[Math.round(q * (all.length - 1))];
    let [low, high] = [all[0], all[all.length - 1]];
    if (!log && kind !== "stack" && all.length > 20) {
      const spread = at(0.98) - at(0.02);
      if (spread > 0 && high - at(0.98) > 2 * spread) high = at(0.98) + 0.25 * spread;
      if (spread > 0 && at(0.02) - low > 2 * spread) low = at(0.02) - 0.25 * spread;
    }
    const cut = ys.filter((v) => v < low || v > high).length;
    if (target && this.isShown(target[0]))
      [low, high] = [Math.min(low, target[0]), Math.max(high, target[0] + 0.1 * Math.abs(target[0]))];
    if (log) return low === high ? { low: low / 2, high: high * 2, cut } : { low: low / 1.15, high: high * 1.15, cut };
    if (kind === "stack" || zero) [low, high] = [Math.min(low, 0), Math.max(high, 0)];
    high = top ?? high;
    if (low === high) [low, high] = low === 0 ? [0, 1] : [low - Math.abs(low) / 2, high + Math.abs(high) / 2];
    const pad = (high - low) * 0.06;
    return { low: low && low - pad, high: high && high !== top ? high + pad : high, cut };
  }

  axes(svg, limits, width, height) {
    const { curves, log, small, target } = this.spec;
    const marks = log ? logTicks(limits.low, limits.high) : ticks(limits.low, limits.high, small ? 3 : height > 230 ? 6 : 4);
    const texts = labels(marks);
    const left = 10 + 6.3 * Math.max(...texts.map((text) => text.length));
    const frame = { left, right: width - 8, top: 8, bottom: height - 22 };
    const warp = log ? Math.log : (v) => v;
    const [a, b] = [warp(limits.low), warp(limits.high)];
    frame.y = (v) => frame.bottom - ((warp(v) - a) / (b - a)) * (frame.bottom - frame.top);
    const level = (v, name) => draw(svg, "line", { class: name, x1: left, x2: frame.right, y1: frame.y(v), y2: frame.y(v) });
    let above = Infinity;
    marks.forEach((v, i) => {
      level(v, v === 0 ? "axis" : "grid");
      if (above - frame.y(v) < 12) return;
      above = frame.y(v);
      draw(svg, "text", { x: left - 6, y: frame.y(v) + 4, "text-anchor": "end" }, texts[i]);
    });
    const xs = curves.flatMap((c) => c.x).filter((v) => v !== null);
    let [first, last] = [Math.min(...xs), Math.max(...xs)];
    if (first > 0 && first < 0.05 * last) first = 0;
    if (first === last) [first, last] = [first - 1, last + 1];
    Object.assign(frame, { first, last });
    frame.x = (v) => (v === null ? null : left + ((v - first) / (last - first)) * (frame.right - left));
    this.label(svg, frame, height);
    draw(svg, "line", { class: "axis", x1: left, x2: frame.right, y1: frame.bottom, y2: frame.bottom });
    if (target && this.isShown(target[0])) level(target[0], "target");
    return frame;
  }

  // The horizontal axis: as many figures as fit, and its unit at the right end where three figures remain beside it.
  label(svg, { left, right, bottom, first, last, x }, height) {
    const { axis, x_unit } = this.spec;
    const time = axis === "time_s";
    const unit = AXES[axis].unit ?? x_unit;
    const stopsOf = (count) => {
      const found = time ? timeTicks(first, last, count) : ticks(first, last, count, [1, 2, 5, 10]);
      const values = found.filter((v) => axis !== "iteration" || Number.isInteger(v));
      const texts = time ? values.map(clock) : labels(values);
      return values.map((v, i) => ({ x: x(v), half: 3.3 * texts[i].length, text: texts[i] }));
    };
    // Those that end before a place and do not overlap.
    const fit = (stops, limit) => {
      let end = -Infinity;
      const fits = (s) => Math.min(s.x, right + 8 - s.half) - s.half > end + 4 && s.x + s.half < limit;
      return stops.filter((s) => fits(s) && ((end = s.x + s.half), true));
    };
    const least = Math.max(3, Math.floor((right - left) / 85));
    let stops = stopsOf(least);
    let shown = fit(stops, Infinity);
    for (let count = least; unit && count < 3 * least; count++) {
      const beside = fit(stopsOf(count), right - 6.5 * unit.length - 8);
      if (beside.length < 3) continue;
      [stops, shown] = [stopsOf(count), beside];
      draw(svg, "text", { x: right, y: height - 6, "text-anchor": "end" }, unit);
      break;
    }
    for (const s of stops) draw(svg, "line", { class: "axis", x1: s.x, x2: s.x, y1: bottom, y2: bottom + 4 });
    for (const s of shown)
      draw(svg, "text", { x: Math.min(s.x, right + 8 - s.half), y: height - 6, "text-anchor": "middle" }, s.text);
  }

  at(clientX) {
    const { left, right, first, last } = this.frame;
    const px = Math.max(left, Math.min(right, clientX - this.box.getBoundingClientRect().left));
    return first + ((px - left) / (right - left)) * (last - first);
  }

  // Marks a place, or none; returns the curves' points there: {curve, i}.
  point(x) {
    this.x = x;
    if (!this.frame) return [];
    const { frame, over, spec } = this;
    over.replaceChildren();
    if (x === null) return [];
    draw(over, "line", { class: "cross", x1: frame.x(x), x2: frame.x(x), y1: frame.top, y2: frame.bottom });
    const found = spec.curves.map((curve) => ({ curve, i: nearest(curve.x, x) })).filter(({ curve, i }) => {
      const step = (curve.x[curve.x.length - 1] - curve.x[0]) / (curve.x.length - 1);
      return i >= 0 && curve.y[i] !== null && !(Math.abs(curve.x[i] - x) > 2 * step);
    });
    for (const { curve, i } of spec.kind === "stack" ? [] : found) {
      const y = this.isShown(curve.y[i]) ? frame.y(curve.y[i]) : NaN;
      if (y >= frame.top - 2 && y <= frame.bottom + 2)
        draw(over, "circle", { class: `here tone${curve.tone}`, cx: frame.x(curve.x[i]), cy: y, r: 4 });
    }
    return found;
  }
}

// Light or dark ------------------------------------------------------------------------------------------------------

let kept = {};
try {
  kept = localStorage;
} catch {
  // A page in a sandbox keeps nothing.
}
if (["light", "dark"].includes(kept.theme)) root.dataset.theme = kept.theme;
document.querySelector("[data-scheme]")?.addEventListener("click", () => {
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = kept.theme = dark ? "light" : "dark";
});
