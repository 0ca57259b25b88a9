// A diagram of several curves, with the interval over runs as a band, and the values under the pointer.
/* global short, clock, ticks, timeTicks, logTicks, draw, path */

export const AXES = {
  iteration: { unit: "iteration", text: (v) => `iteration ${Math.round(v)}` },
  env_steps: { unit: "steps", text: (v) => `${short(v)} steps` },
  time_s: { unit: "h:min:s", text: (v) => clock(v) },
};

export class Chart {
  // onPoint(x or null): the pointer is at a place, which all diagrams show.
  constructor(parent, { onPoint, onClose }) {
    this.element = document.createElement("figure");
    this.element.className = "chart";
    const caption = make(this.element, "figcaption", "");
    this.title = make(caption, "span", "title");
    this.aside = make(caption, "span", "aside");
    this.close = make(caption, "button", "close", "×");
    this.close.title = "Leave this metric out";
    this.close.addEventListener("click", () => onClose());
    this.box = make(this.element, "div", "plot");
    this.box.setAttribute("role", "img");
    parent.append(this.element);
    this.box.addEventListener("pointermove", (event) => this.frame && onPoint(this.at(event.clientX), this));
    this.box.addEventListener("pointerleave", () => onPoint(null, this));
    new ResizeObserver(() => requestAnimationFrame(() => this.box.clientWidth !== this.width && this.paint())).observe(this.box);
  }

  // curves: {label, colour, x, y, low, high, runs}
  show(metric, curves, { axis, bound, smooth, log, isOnly }) {
    Object.assign(this, { metric, axis, bound, log });
    this.curves = curves.map((curve) => (smooth ? calm(curve) : curve));
    this.close.hidden = isOnly;
    this.title.textContent = metric;
    this.box.setAttribute("aria-label", `${metric}: ${curves.length} curves`);
    this.paint();
  }

  paint() {
    if (!this.curves) return;
    this.box.replaceChildren();
    this.frame = null;
    this.width = this.box.clientWidth;
    const { width } = this;
    const height = Math.max(180, Math.min(300, width * 0.42));
    const svg = draw(this.box, "svg", { height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
    const limits = this.limits();
    const remarks = [];
    if (this.bound !== null) remarks.push(`dashed: solved at ${short(this.bound)}`);
    if (limits?.cut) remarks.push(`${limits.cut} points off the scale`);
    this.aside.textContent = remarks.join(" · ");
    if (!limits || width < 80) return void draw(svg, "text", { x: 12, y: 24 }, "no value yet");
    this.frame = this.axes(svg, limits, width, height);
    this.lines(svg);
    this.over = draw(svg, "g", {});
  }

  lines(svg) {
    const { frame } = this;
    const id = `clip-${this.metric.replace(/\W/g, "-")}`;
    const clip = draw(draw(svg, "clipPath", { id }), "rect", { x: frame.left - 1, y: frame.top - 3 });
    clip.setAttribute("width", frame.right - frame.left + 4);
    clip.setAttribute("height", frame.bottom - frame.top + 6);
    const layer = draw(svg, "g", { "clip-path": `url(#${id})` });
    const y = (v) => (v === null || (this.log && v <= 0) ? null : frame.y(v));
    for (const curve of this.curves) {
      const there = curve.x.map((_, i) => curve.low[i] !== null && y(curve.low[i]) !== null);
      for (const [from, to] of spans(there)) {
        const places = curve.x.slice(from, to).map(frame.x);
        const up = places.map((x, i) => `${x.toFixed(1)} ${y(curve.high[from + i]).toFixed(1)}`);
        const down = places.map((x, i) => `${x.toFixed(1)} ${y(curve.low[from + i]).toFixed(1)}`).reverse();
        draw(layer, "path", { class: `band c${curve.colour}`, d: `M${[...up, ...down].join("L")}Z` });
      }
    }
    for (const curve of [...this.curves].reverse()) {
      const [xs, ys] = [curve.x.map(frame.x), curve.y.map(y)];
      draw(layer, "path", { class: `line c${curve.colour}`, d: path(xs, ys) });
      if (xs.length === 1 && ys[0] !== null) draw(layer, "circle", { class: `dot c${curve.colour}`, cx: xs[0], cy: ys[0], r: 3 });
    }
  }

  // All values, unless a few lie so far out that they would flatten the rest.
  limits() {
    const all = this.curves.flatMap((c) => [...c.y, ...c.low, ...c.high]).filter((v) => v !== null && (!this.log || v > 0));
    if (!all.length) return null;
    all.sort((a, b) => a - b);
    const at = (q) => all[Math.round(q * (all.length - 1))];
    let [low, high] = [all[0], all[all.length - 1]];
    if (!this.log && all.length > 40) {
      const spread = at(0.98) - at(0.02);
      if (spread > 0 && high - at(0.98) > 2 * spread) high = at(0.98) + 0.25 * spread;
      if (spread > 0 && at(0.02) - low > 2 * spread) low = at(0.02) - 0.25 * spread;
    }
    const cut = this.curves.flatMap((c) => c.y).filter((v) => v !== null && (v < low || v > high)).length;
    if (this.bound !== null && (!this.log || this.bound > 0)) [low, high] = [Math.min(low, this.bound), Math.max(high, this.bound)];
    if (this.log) return low === high ? { low: low / 2, high: high * 2, cut } : { low: low / 1.1, high: high * 1.1, cut };
    if (low === high) [low, high] = low === 0 ? [0, 1] : [low - Math.abs(low) / 2, high + Math.abs(high) / 2];
    const pad = (high - low) * 0.05;
    return { low: low === 0 ? 0 : low - pad, high: high === 0 ? 0 : high + pad, cut };
  }

  axes(svg, limits, width, height) {
    const marks = this.log ? logTicks(limits.low, limits.high) : ticks(limits.low, limits.high, 6);
    const left = 12 + 6.4 * Math.max(...marks.map((v) => short(v).length));
    const frame = { left, right: width - 10, top: 10, bottom: height - 24 };
    const warp = this.log ? Math.log : (v) => v;
    const [a, b] = [warp(limits.low), warp(limits.high)];
    frame.y = (v) => frame.bottom - ((warp(v) - a) / (b - a)) * (frame.bottom - frame.top);
    for (const v of marks) {
      draw(svg, "line", { class: v === 0 ? "axis" : "grid", x1: left, x2: frame.right, y1: frame.y(v), y2: frame.y(v) });
      draw(svg, "text", { x: left - 7, y: frame.y(v) + 4, "text-anchor": "end" }, short(v));
    }
    let first = Math.min(...this.curves.filter((c) => c.x.length).map((c) => c.x[0]));
    let last = Math.max(...this.curves.filter((c) => c.x.length).map((c) => c.x[c.x.length - 1]));
    if (first > 0 && first < 0.05 * last) first = 0;
    if (first === last) [first, last] = [first - 1, last + 1];
    frame.x = (v) => left + ((v - first) / (last - first)) * (frame.right - left);
    frame.back = (px) => first + ((px - left) / (frame.right - left)) * (last - first);
    this.labels(svg, frame, first, last, height);
    draw(svg, "line", { class: "axis", x1: left, x2: frame.right, y1: frame.bottom, y2: frame.bottom });
    if (this.bound !== null && (!this.log || this.bound > 0)) {
      const at = frame.y(this.bound);
      draw(svg, "line", { class: "target", x1: left, x2: frame.right, y1: at, y2: at });
    }
    return frame;
  }

  labels(svg, frame, first, last, height) {
    const { unit } = AXES[this.axis];
    const count = Math.max(3, Math.floor((frame.right - frame.left) / 85));
    const all = this.axis === "time_s" ? timeTicks(first, last, count) : ticks(first, last, count, [1, 2, 5, 10]);
    const places = all.filter((v) => this.axis !== "iteration" || Number.isInteger(v));
    const free = frame.right - 6.5 * unit.length - 8;
    draw(svg, "text", { x: frame.right, y: height - 6, "text-anchor": "end" }, unit);
    for (const v of places) {
      const [x, label] = [frame.x(v), this.axis === "time_s" ? clock(v) : short(v)];
      draw(svg, "line", { class: "axis", x1: x, x2: x, y1: frame.bottom, y2: frame.bottom + 4 });
      if (x + 3.3 * label.length < free) draw(svg, "text", { x, y: height - 6, "text-anchor": "middle" }, label);
    }
  }

  at(clientX) {
    const px = clientX - this.box.getBoundingClientRect().left;
    return this.frame.back(Math.max(this.frame.left, Math.min(this.frame.right, px)));
  }

  // Marks a place, or none; returns the curves' points there: {curve, i}.
  point(x) {
    if (!this.frame) return [];
    this.over.replaceChildren();
    if (x === null) return [];
    const { frame } = this;
    const found = this.curves.map((curve) => ({ curve, i: nearest(curve.x, x) })).filter(({ curve, i }) => {
      const step = curve.x.length > 1 ? (curve.x[curve.x.length - 1] - curve.x[0]) / (curve.x.length - 1) : Infinity;
      return i >= 0 && curve.y[i] !== null && Math.abs(curve.x[i] - x) <= 2 * step;
    });
    draw(this.over, "line", { class: "cross", x1: frame.x(x), x2: frame.x(x), y1: frame.top, y2: frame.bottom });
    for (const { curve, i } of found) {
      const y = this.log && curve.y[i] <= 0 ? null : frame.y(curve.y[i]);
      if (y !== null && y >= frame.top - 2 && y <= frame.bottom + 2)
        draw(this.over, "circle", { class: `here c${curve.colour}`, cx: frame.x(curve.x[i]), cy: y, r: 4 });
    }
    return found;
  }

  remove() {
    this.element.remove();
  }
}

export function make(parent, name, className, content) {
  const node = document.createElement(name);
  if (name === "button") node.type = "button";
  if (className) node.className = className;
  if (content !== undefined) node.textContent = content;
  parent.append(node);
  return node;
}

function nearest(xs, x) {
  let [low, high] = [0, xs.length - 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (xs[middle] < x) low = middle + 1;
    else high = middle;
  }
  return low > 0 && Math.abs(xs[low - 1] - x) < Math.abs(xs[low] - x) ? low - 1 : low < xs.length ? low : -1;
}

function spans(there) {
  const found = [];
  for (let i = 0; i < there.length; i++) {
    if (!there[i]) continue;
    const from = i;
    while (i < there.length && there[i]) i++;
    found.push([from, i]);
  }
  return found;
}

// Means over neighbours, of the line and of both ends of the band.
function calm(curve) {
  const half = Math.round(curve.x.length / 60);
  if (half < 1) return curve;
  const mean = (values) => values.map((value, i) => {
    if (value === null) return null;
    let [sum, count] = [0, 0];
    for (let j = Math.max(0, i - half); j <= Math.min(values.length - 1, i + half); j++)
      if (values[j] !== null) [sum, count] = [sum + values[j], count + 1];
    return sum / count;
  });
  return { ...curve, y: mean(curve.y), low: mean(curve.low), high: mean(curve.high) };
}
