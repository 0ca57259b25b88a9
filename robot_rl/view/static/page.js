// The diagrams of a page, from the JSON block of the page. What the page holds is the whole of it: nothing is fetched.
// <html> tells how it went: data-charts counts the diagrams drawn.

const { axes, charts } = JSON.parse(document.getElementById("data").textContent);
const state = { axis: Object.keys(axes)[0] || "iteration", smooth: document.querySelector("[data-smooth]") !== null, row: null, chart: null };
const views = [...document.querySelectorAll("[data-chart]")].map((figure) => ({
  chart: charts[Number(figure.dataset.chart)],
  diagram: new Diagram(figure, (x) => point(x, charts[Number(figure.dataset.chart)])),
  read: figure.querySelector(".read"),
  legend: [...figure.querySelectorAll(".legend output")],
}));

// The horizontal places of a chart: its own, or the page's.
function places(chart) {
  return chart.x ?? axes[state.axis];
}

function curves({ kind, series, x: own }) {
  const x = own ?? axes[state.axis];
  if (kind !== "stack") return series.map(({ tone, dashed, values }) => ({ tone, dashed, x, y: values }));
  let base = x.map(() => 0);
  return series.map(({ tone, values }) => {
    const low = base;
    const isGap = (i) => series.every((other) => other.values[i] === null);
    base = values.map((v, i) => low[i] + (v ?? 0));
    const high = base.map((v, i) => (isGap(i) ? null : v));
    return { tone, x, y: high, low, high };
  });
}

function all() {
  for (const { chart, diagram } of views)
    diagram.show({ ...chart, curves: curves(chart), axis: chart.x ? "own" : state.axis, smooth: state.smooth, raw: true, most: 230 });
  state.row = null;
  read();
  root.dataset.charts = String(views.length);
}

// The values at the reading point of all diagrams, else the last ones.
function read() {
  for (const { chart, diagram, read, legend } of views) {
    const row = chart.x && state.chart !== chart ? null : state.row;
    const value = ({ values }) => short(values[row ?? values.findLastIndex((v) => v !== null)] ?? null);
    if (read) read.textContent = value(chart.series[0]);
    legend.forEach((output, s) => (output.textContent = value(chart.series[s])));
    diagram.point(row === null ? null : places(chart)[row]);
  }
  const row = state.chart?.x ? null : state.row;
  const where = document.getElementById("where");
  if (!where) return;
  const keys = Object.keys(axes);
  const shown = row ?? axes[keys[0]].length - 1;
  const place = keys.filter((key) => axes[key][shown] !== null).map((key) => AXES[key].text(axes[key][shown]));
  where.textContent = (row === null ? "last: " : "") + place.join(" · ");
}

let pending = 0;
function point(x, chart) {
  state.chart = chart;
  state.row = x === null ? null : nearest(places(chart), x);
  pending ||= requestAnimationFrame(() => {
    pending = 0;
    read();
  });
}

for (const button of document.querySelectorAll("[data-axis]")) {
  button.addEventListener("click", () => {
    for (const other of document.querySelectorAll("[data-axis]")) other.setAttribute("aria-pressed", String(other === button));
    state.axis = button.dataset.axis;
    all();
  });
}
document.querySelector("[data-smooth]")?.addEventListener("click", ({ target }) => {
  state.smooth = !state.smooth;
  target.setAttribute("aria-pressed", String(state.smooth));
  all();
});
all();
const film = document.querySelector("video");
if (film && !matchMedia("(prefers-reduced-motion: reduce)").matches) film.play().catch(() => {});
