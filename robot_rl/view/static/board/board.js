/* global AXES, Diagram, root, short */
// The page: what is shown follows from the state (the address) and the runs (which the server is asked for).

import { groupColumns, ownColumns, runColumns } from "./columns.js";
import { GOAL, Runs, STATES, ask, compare, make, text } from "./data.js";
import { Details, Diff } from "./details.js";
import { parse, word, words } from "./filter.js";
import { Grid } from "./grid.js";
import { Menu } from "./menu.js";
import * as hash from "./state.js";

const POLL_MS = 3000;
const TONES = [0, 2, 5, 4, 3, 1, 7, 8, 9, 10];
const DRAWN = 8;
const MOST_DRAWN = 40;
const FACETS = 4;
const FACET_VALUES = 6;

const $ = (id) => document.getElementById(id);
const runs = new Runs();
const charts = new Map();
const opened = new Set();
const figures = new Map();
let state = hash.read();
let view = { rows: [], all: [], differing: new Map(), curves: [], groups: [] };
let drawnKey = "";
let lastTicked = null;
let readings = new Map();

// Changes ------------------------------------------------------------------------------------------------------------

function change(part) {
  Object.assign(state, part);
  update();
  // A metric that was not needed before comes with the next answer.
  if (neededMetrics().some((name) => !runs.asked.includes(name))) poll();
}

const toggled = (list, name) => (list.includes(name) ? list.filter((other) => other !== name) : [...list, name]);

function toggleWord(name, value) {
  const wanted = word(name, value);
  const parts = words($("filter").value);
  const left = parts.includes(wanted) ? parts.filter((part) => part !== wanted) : [...parts.filter((part) => !part.startsWith(`${name}=`)), wanted];
  $("filter").value = left.join(" ");
  change({ filter: $("filter").value });
}

// View ---------------------------------------------------------------------------------------------------------------

function neededMetrics() {
  const names = [...parse(state.filter, runs).names, ...(state.columns ?? []), ...state.by, state.sort.replace(/^-/, ""), ...state.metrics];
  return [...new Set(names)].filter((name) => runs.isMetric(name)).sort();
}

// What is made again keeps the focus, by its place in its part of the page.
function update() {
  const focused = document.activeElement;
  const box = ["states", "facets", "grid", "legend"].map($).find((part) => part !== focused && part.contains(focused));
  const parts = () => [...(box?.querySelectorAll("button, input, a") ?? [])];
  const index = parts().indexOf(focused);
  show();
  if (index >= 0 && !focused.isConnected) parts()[index]?.focus();
}

function show() {
  hash.write(state);
  const all = [...runs.all.values()];
  const filter = parse(state.filter, runs);
  const found = all.filter((run) => (!state.task || run.task === state.task) && filter.matches(run));
  const shown = found.filter((run) => !state.states.length || state.states.includes(run.state));
  const differing = runs.differing(shown);
  const by = state.by.map((name) => runs.resolve(name) ?? name);
  view = { runs, all: shown, differing, by, metric: state.metrics[0], groups: [], onTick, own: ownColumns(state, differing) };
  view.metricName = view.metric === GOAL ? goalOf(shown) : view.metric;
  view.value = (run) => (view.metric === GOAL ? run.goal[1] : runs.value(run, view.metric)) ?? undefined;
  view.picked = new Set(state.picked);
  if (by.length) groupRows();
  else view.rows = sorted(shown.map((run) => ({ key: run.name, run })), (row, key) => runs.value(row.run, key), "-created");
  chooseCurves();
  showTools(all, found, filter);
  showFacets();
  showTable();
  showCurves();
  const run = runs.all.get(state.open) ?? null;
  details.show(run, runs);
  const pair = by.length ? [] : state.picked.map((name) => runs.all.get(name)).filter(Boolean);
  diff.show(pair.length === 2 ? pair : []);
}

// Rows by a column, those without a value last; equal ones stay as they are.
function sorted(rows, valueOf, fallback) {
  let key = state.sort.replace(/^-/, "");
  let sign = state.sort.startsWith("-") ? -1 : 1;
  if (!rows.some((row) => valueOf(row, key) !== undefined)) [key, sign] = [fallback.replace(/^-/, ""), fallback.startsWith("-") ? -1 : 1];
  view.sort = `${sign < 0 ? "-" : ""}${key}`;
  const values = new Map(rows.map((row) => [row, valueOf(row, key)]));
  return rows.sort((a, b) => {
    const [x, y] = [values.get(a), values.get(b)];
    if (x === undefined || y === undefined) return (x === undefined) - (y === undefined);
    return sign * compare(x, y);
  });
}

function groupRows() {
  const groups = new Map();
  const isOneTask = state.task || new Set(view.all.map((run) => run.task)).size <= 1;
  if (!isOneTask && !view.by.includes("task")) view.by = ["task", ...view.by];
  for (const run of view.all.filter((one) => one.set)) {
    const values = view.by.map((name) => runs.value(run, name));
    const key = view.by.map((name, i) => `${name}=${text(values[i])}`).join(" ");
    if (!groups.has(key)) groups.set(key, { key, kind: "group", raw: values, values: values.map(text), runs: [] });
    groups.get(key).runs.push(run);
  }
  view.groups = [...groups.values()];
  for (const group of view.groups) {
    group.figures = figures.get(figuresKey(group));
    group.isOpen = opened.has(group.key);
  }
  const valueOf = (group, key) => {
    const i = view.by.indexOf(key);
    return (i >= 0 ? group.raw[i] : group.figures?.[key]) ?? undefined;
  };
  sorted(view.groups, valueOf, view.by[0]);
  view.rows = view.groups.flatMap((group) =>
    group.isOpen ? [group, ...group.runs.map((run) => ({ key: run.name, kind: "member", run }))] : [group]);
  askFigures();
}

const figuresKey = (group) => `${view.metric} ${group.runs.map((run) => `${run.name}:${run.version}`).join()}`;

async function askFigures() {
  const lacking = view.groups.filter((group) => !figures.has(figuresKey(group)));
  if (!lacking.length) return;
  const keys = lacking.map(figuresKey);
  keys.forEach((key) => figures.set(key, undefined));
  const asked = { metric: view.metric, groups: lacking.map((group) => group.runs.map((run) => run.name)) };
  let found;
  try {
    found = await ask("groups", asked);
  } catch (error) {
    keys.forEach((key) => figures.delete(key));
    throw error;
  }
  if (figures.size > 2 * view.groups.length + 500) figures.clear();
  keys.forEach((key, i) => figures.set(key, found[i]));
  update();
}

// Curves -------------------------------------------------------------------------------------------------------------

function chooseCurves() {
  const rows = view.by.length ? view.groups : view.rows;
  const picked = rows.filter((row) => view.picked.has(row.key));
  const members = view.by.length ? view.rows.filter((row) => row.run && view.picked.has(row.key)) : [];
  const hidden = view.by.length ? [] : state.picked.map((name) => runs.all.get(name)).filter((run) => run && !picked.some((row) => row.run === run));
  const chosen = [...picked, ...members, ...hidden.map((run) => ({ key: run.name, run }))];
  const drawn = chosen.length ? chosen.slice(0, MOST_DRAWN) : rows.filter((row) => !row.run || (row.run.set && row.run.iterations[0])).slice(0, DRAWN);
  view.isDefault = !chosen.length;
  view.curves = drawn.map((row, i) => ({ row, tone: TONES[i % TONES.length], label: label(row), isGroup: !row.run }));
  view.colors = new Map(view.curves.map((curve) => [curve.row.key, curve.tone]));
}

function label(row) {
  if (!row.run) return view.by.map((name, i) => (name === "task" ? row.values[i] : `${runs.brief(name)} ${row.values[i]}`)).join(", ");
  const names = [...view.differing.keys()].filter((name) => name !== "seed" && name !== "learner").slice(0, 3);
  const parts = names.map((name) => `${runs.brief(name)} ${text(runs.setting(row.run, name))}`);
  if (runs.setting(row.run, "seed") !== undefined) parts.push(`seed ${text(runs.setting(row.run, "seed"))}`);
  for (const name of ["learner", "task"])
    if (new Set(view.all.map((run) => runs.value(run, name))).size > 1) parts.unshift(text(runs.value(row.run, name)));
  return parts.join(", ") || row.run.id;
}

// The metrics that are drawn: not the goal's twice.
function shownMetrics() {
  const goal = state.metrics.includes(GOAL) ? goalName() : "";
  return state.metrics.filter((name) => name !== goal || name === GOAL);
}

async function showCurves() {
  const members = (curve) => (curve.row.run ? [curve.row.run] : curve.row.runs);
  const metrics = shownMetrics();
  showLegend(members);
  const key = JSON.stringify([metrics, state.axis, view.curves.map((curve) => members(curve).map((run) => [run.name, run.version]))]);
  if (key === drawnKey) return drawCharts();
  drawnKey = key;
  const asked = { metrics, axis: state.axis, curves: view.curves.map((curve) => members(curve).map((run) => run.name)) };
  root.dataset.drawing = "1";
  try {
    const found = await ask("curves", asked);
    if (key !== drawnKey) return;
    drawCharts.found = { ...found, metrics, keys: view.curves.map((curve) => curve.row.key) };
    drawCharts();
  } catch (error) {
    drawnKey = "";
    throw error;
  } finally {
    if (key === drawnKey) delete root.dataset.drawing;
  }
}

function drawCharts() {
  const { found } = drawCharts;
  const metrics = shownMetrics();
  if (!found || found.metrics.join() !== metrics.join()) return;
  for (const [metric, chart] of charts) {
    if (metrics.includes(metric)) continue;
    chart.figure.remove();
    charts.delete(metric);
  }
  metrics.forEach((metric, m) => {
    if (!charts.has(metric)) charts.set(metric, makeChart(metric));
    const curves = view.curves.map((curve) => ({ ...curve, ...found.curves[m][found.keys.indexOf(curve.row.key)] })).filter((curve) => curve.x);
    const chart = charts.get(metric);
    chart.close.hidden = metrics.length === 1;
    chart.diagram.box.setAttribute("aria-label", `${metric}: ${curves.length} curves`);
    chart.title.textContent = metric === GOAL ? goalName() : metric;
    const target = found.bounds[m] === null ? null : [found.bounds[m], "solved at"];
    chart.diagram.show({ curves, axis: state.axis, target, smooth: state.smooth, log: state.log, most: 300 });
  });
  point(null);
  root.dataset.drawn = String(view.curves.length);
}

function makeChart(metric) {
  const figure = make($("charts"), "figure", "chart");
  const caption = make(figure, "figcaption", "");
  const title = make(caption, "span", "title");
  make(caption, "span", "aside");
  const close = make(caption, "button", "close", "×");
  close.title = "Leave this metric out";
  close.addEventListener("click", () => change({ metrics: state.metrics.filter((other) => other !== metric) }));
  make(figure, "div", "plot").setAttribute("role", "img");
  const chart = { figure, title, close };
  chart.diagram = new Diagram(figure, (x) => point(x, x === null ? undefined : chart));
  return chart;
}

const goalName = () => goalOf(view.curves.flatMap(({ row }) => (row.run ? [row.run] : row.runs)));

// The name of some runs' goal, where they have the same.
function goalOf(some) {
  const names = new Set(some.filter((run) => run.goal[1] !== null).map((run) => run.goal[0]));
  return names.size === 1 ? [...names][0] : GOAL;
}

function showLegend(members) {
  const legend = $("legend");
  legend.replaceChildren();
  readings = new Map();
  for (const curve of view.curves) {
    const item = make(legend, "button", `tone${curve.tone}`);
    make(item, "i", "");
    make(item, "span", "label", curve.label);
    readings.set(curve.row.key, { value: make(item, "b", ""), spread: make(item, "span", "soft"), count: members(curve).length });
    item.title = curve.row.key;
    item.addEventListener("click", () => curve.row.run && change({ open: curve.row.run.name }));
  }
  const many = view.by.length ? view.groups.length : view.rows.length;
  const what = view.by.length ? "groups" : "runs";
  const first = many > view.curves.length ? `the first ${view.curves.length} of ${many} ${what}; tick others` : "";
  $("drawn").textContent = view.isDefault ? first : `${view.curves.length} ticked`;
}

// The values in the legend: of one diagram at a place, else the last ones of the first diagram.
function point(x, here) {
  const found = new Map();
  for (const chart of charts.values()) found.set(chart, chart.diagram.point(x));
  const first = here ?? charts.get(shownMetrics()[0]);
  const last = (curve) => ({ curve, i: curve.y.findLastIndex((v) => v !== null) });
  const shown = x === null ? (first?.diagram.spec.curves ?? []).map(last).filter(({ i }) => i >= 0) : found.get(here);
  $("place").textContent = first ? `${first.title.textContent}, ${x === null ? "last" : AXES[state.axis].text(x)}` : "";
  for (const { value, spread } of readings.values()) value.textContent = spread.textContent = "";
  for (const { curve, i } of shown) {
    const reading = readings.get(curve.row.key);
    if (!reading) continue;
    reading.value.textContent = short(curve.y[i]);
    const interval = curve.low[i] === null ? "" : `${short(curve.low[i])} to ${short(curve.high[i])}`;
    const count = curve.isGroup ? `${curve.runs[i]} of ${reading.count} runs` : "";
    reading.spread.textContent = [interval, count].filter(Boolean).join(" · ");
  }
}

function onTick(row, isRange) {
  let picked = toggled(state.picked, row.key);
  const index = view.rows.findIndex((other) => other.key === row.key);
  if (isRange && lastTicked !== null) {
    const [from, to] = [Math.min(index, lastTicked), Math.max(index, lastTicked)];
    const some = view.rows.slice(from, to + 1).filter((other) => other.kind === row.kind).map((other) => other.key);
    picked = picked.includes(row.key) ? [...new Set([...state.picked, ...some])] : state.picked.filter((key) => !some.includes(key));
  }
  lastTicked = index;
  change({ picked });
}

// Parts of the page --------------------------------------------------------------------------------------------------

function showTools(all, found, filter) {
  $("root").textContent = runs.root;
  const counts = new Map(STATES.map((name) => [name, 0]));
  for (const run of found) counts.set(run.state, counts.get(run.state) + 1);
  $("states").replaceChildren();
  for (const [name, count] of counts) {
    if (!count && !state.states.includes(name)) continue;
    const button = make($("states"), "button", `state ${name}`, `${count} ${name}`);
    button.setAttribute("aria-pressed", String(state.states.includes(name)));
    button.addEventListener("click", () => change({ states: toggled(state.states, name) }));
  }
  const tasks = [...new Set(all.map((run) => run.task))].sort(compare);
  const select = $("task");
  if (select.dataset.tasks !== tasks.join("\n")) {
    select.dataset.tasks = tasks.join("\n");
    select.replaceChildren(new Option("All tasks", ""), ...tasks.map((name) => new Option(name, name)));
  }
  select.value = state.task;
  const unknown = filter.unknown.map((name) => `“${name}” is no setting, metric or column here`);
  const reading = runs.reading ? [`${runs.reading} run.yaml are still being read`] : [];
  const none = all.length ? `none of ${all.length} runs` : "no runs yet; robot-rl train makes one";
  const count = view.all.length ? `${view.all.length === all.length ? "" : `${view.all.length} of `}${all.length} runs` : none;
  const groups = view.by.length ? [`${view.groups.length} groups`] : [];
  $("note").textContent = [[count, ...groups].join(" in "), ...unknown, ...reading].join(" · ");
  $("note").classList.toggle("bad", unknown.length > 0);
  $("clear").hidden = !(state.filter || state.task || state.states.length || state.by.length || state.picked.length || state.columns);
  menus.by.label(state.by.length ? `By ${state.by.map((name) => runs.brief(name)).join(", ")}` : "Group by", state.by.length);
  $("columns").hidden = view.by.length > 0;
  menus.columns.label("Columns", state.columns ? 1 : 0);
  menus.metrics.label(`Metrics (${shownMetrics().length})`, 0);
  for (const button of document.querySelectorAll("[data-axis]")) button.setAttribute("aria-pressed", String(button.dataset.axis === state.axis));
  for (const name of ["smooth", "log"]) $(name).setAttribute("aria-pressed", String(state[name]));
}

// The settings that differ: their values to filter by, their names to group by.
function showFacets() {
  const used = words(state.filter);
  const isFiltered = (name) => used.some((part) => part.startsWith(`${name}=`));
  const names = [...view.differing.keys()].filter((name) => name !== "task");
  const tags = new Map();
  for (const tag of view.all.flatMap((run) => run.tags)) tags.set(tag, (tags.get(tag) ?? 0) + 1);
  if (tags.size) names.unshift("tag");
  for (const part of used) {
    const name = part.match(/^([\w./:-]+?)=/)?.[1];
    if (name && runs.resolve(name) === name && !names.includes(name)) names.unshift(name);
  }
  const parts = names.filter((name) => name !== "seed").slice(0, FACETS);
  if (names.includes("seed")) parts.push("seed");
  $("facets").replaceChildren();
  for (const name of parts) {
    const box = make($("facets"), "div", "facet");
    const title = make(box, "button", "name", runs.brief(name));
    title.title = `Group by ${name}`;
    title.setAttribute("aria-pressed", String(state.by.includes(name)));
    title.addEventListener("click", () => change({ by: toggled(state.by, name) }));
    const counts = (name === "tag" ? tags : view.differing.get(name)) ?? new Map(used.filter((part) => part.startsWith(`${name}=`)).map((part) => [part.slice(name.length + 1), view.all.length]));
    const values = [...counts].sort((a, b) => compare(Number(a[0]) || a[0], Number(b[0]) || b[0]));
    if (values.length > FACET_VALUES) make(box, "span", "soft", `${values.length} values`);
    for (const [value, count] of values.length > FACET_VALUES ? [] : values) {
      const button = make(box, "button", "", value);
      make(button, "small", "", String(count));
      button.setAttribute("aria-pressed", String(isFiltered(name)));
      button.addEventListener("click", () => toggleWord(name, value.replace("−", "-")));
    }
  }
}

function showTable() {
  const columns = view.by.length ? groupColumns(view) : runColumns(view);
  if (state.open) view.rows.forEach((row) => row.run?.name === state.open && (row.kind = `${row.kind ?? ""} open`));
  grid.show(columns, view.rows, view.sort);
  root.dataset.rows = String(view.rows.length);
}

function close() {
  change({ open: "" });
  $("grid").focus();
}

// Moves a run into the trash, from which a button brings it back.
async function remove(run) {
  const line = $("deleted");
  line.hidden = false;
  try {
    const { trash } = await ask("delete", { run: run.name });
    line.textContent = `${run.label || run.id} is in the trash. `;
    const undo = make(line, "button", "", "Undo");
    undo.addEventListener("click", async () => {
      try {
        await ask("restore", { trash });
        line.hidden = true;
      } catch (error) {
        line.textContent = error.message;
      }
      poll();
    });
    change({ open: "", picked: state.picked.filter((name) => name !== run.name) });
    undo.focus();
  } catch (error) {
    line.textContent = error.message;
  }
  poll();
}

function onRow(row) {
  if (row.run) return change({ open: state.open === row.run.name ? "" : row.run.name });
  if (!opened.delete(row.key)) opened.add(row.key);
  update();
}

const onMove = (row) => state.open && row.run && change({ open: row.run.name });
const grid = new Grid($("grid"), { onSort: (sort) => change({ sort }), onRow, onMove, onTick });
const details = new Details($("details"), { onClose: close, onDelete: remove, onChange: poll });
const diff = new Diff($("diff"));
const settingsOf = () => [...runs.names].sort(compare);
const menus = {
  by: new Menu($("by"), {
    options: () => [["Differ", [...view.differing.keys()]], ["All settings", ["learner", ...settingsOf().filter((name) => !view.differing.has(name) && name !== "learner")]]],
    chosen: () => state.by,
    onToggle: (name) => change({ by: toggled(state.by, name) }),
  }),
  columns: new Menu($("columns"), {
    options: () => [["Differ", [...view.differing.keys()]], ["Metrics", runs.metrics], ["All settings", settingsOf().filter((name) => !view.differing.has(name))]],
    chosen: () => view.own,
    onToggle: (name) => change({ columns: toggled(view.own, name) }),
  }),
  metrics: new Menu($("metrics"), {
    options: () => [["Of the task", [GOAL]], ["All metrics", runs.metrics]],
    chosen: () => state.metrics,
    onToggle: (name) => {
      const metrics = toggled(state.metrics, name).slice(-12);
      change({ metrics: metrics.length ? metrics : [GOAL] });
    },
  }),
};

function listen() {
  const filter = $("filter");
  filter.value = state.filter;
  filter.addEventListener("input", () => change({ filter: filter.value }));
  $("task").addEventListener("change", (event) => change({ task: event.target.value }));
  $("clear").addEventListener("click", () => {
    filter.value = "";
    change({ filter: "", task: "", states: [], by: [], picked: [], columns: null });
  });
  for (const button of document.querySelectorAll("[data-axis]")) button.addEventListener("click", () => change({ axis: button.dataset.axis }));
  for (const name of ["smooth", "log"]) $(name).addEventListener("click", () => change({ [name]: !state[name] }));
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && state.open && !event.target.closest(".menu, input[type=search]")) close();
  });
  addEventListener("hashchange", () => {
    state = hash.read();
    filter.value = state.filter;
    update();
    poll();
  });
  document.addEventListener("visibilitychange", () => document.hidden || poll());
}

// Refresh ------------------------------------------------------------------------------------------------------------

let polling = null;

async function poll() {
  if (polling) return polling.again = true;
  polling = { again: false };
  try {
    const changed = await runs.poll(neededMetrics());
    live("live", "");
    if (changed.length || !root.dataset.rows) update();
  } catch (error) {
    live("lost", error instanceof TypeError ? "the board has ended; robot-rl board starts it again" : error.message);
    if (!(error instanceof TypeError)) throw error;
  } finally {
    const { again } = polling;
    polling = null;
    if (again || neededMetrics().some((name) => !runs.asked.includes(name))) setTimeout(poll, 0);
  }
}

function live(kind, line) {
  $("live").className = kind;
  $("live").textContent = line;
}

listen();
await poll();
setInterval(() => document.hidden || poll(), POLL_MS);
