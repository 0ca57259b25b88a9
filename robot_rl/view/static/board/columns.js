// The columns of the table, of runs and of groups of runs.
/* global short */

import { GOAL, ago, make, text } from "./data.js";

const MOST_OWN = 5;
const LINKS = [["report.html", "report"], ["video.mp4", "video"]];

const width = (texts, least = 56, most = 220) =>
  Math.round(Math.min(most, Math.max(least, 8 * texts.reduce((max, one) => Math.max(max, one.length), 0) + 30)));

// The columns that are shown: those that the user chose, else the settings that differ.
export function ownColumns(state, differing) {
  if (state.columns) return state.columns;
  return [...differing.keys()].filter((name) => name !== "seed" && name !== "task" && name !== "learner").slice(0, MOST_OWN);
}

export function runColumns(view) {
  const { runs, rows, own } = view;
  const all = rows.map((row) => row.run);
  const values = (name) => all.map((run) => runs.value(run, name));
  const isOne = (name) => new Set(values(name).map(text)).size <= 1;
  const column = (name, title, hint) => {
    const texts = values(name).map((value) => figure(value));
    return {
      key: name, title, hint, width: width([...texts, title]), right: values(name).some((v) => typeof v === "number"),
      fill: (cell, row) => (cell.textContent = figure(runs.value(row.run, name))),
    };
  };
  return [
    tick(view),
    { key: "run", title: "run", width: width(all.map((run) => run.label || run.id), 90, 178), grows: true, fill: named },
    ...(all.some((run) => LINKS.some(([file]) => run.files.includes(file))) ? [links()] : []),
    ...(isOne("task") ? [] : [column("task", "task")]),
    ...(isOne("learner") ? [] : [column("learner", "learner")]),
    ...(isOne("seed") ? [] : [column("seed", "seed")]),
    stateColumn(),
    progress(),
    goalColumn(view, all),
    ...own.map((name) => column(name, runs.brief(name), name)),
    ...(all.some((run) => run.tags.length) ? [tags(all)] : []),
    { key: "changed", title: "changed", width: 92, right: true, fill: (cell, row) => {
      cell.className = "right soft";
      cell.textContent = ago(runs.now - row.run.changed);
    } },
  ];
}

const figure = (value) => {
  const plain = text(value);
  return typeof value === "number" && plain.length > 7 ? short(value) : plain;
};

function tick(view) {
  return { key: "tick", title: "", width: 34, fill: (cell, row) => {
    cell.className = "tick";
    const label = make(cell, "label", "");
    const box = make(label, "input", "");
    const color = view.colors.get(row.key);
    Object.assign(box, { type: "checkbox", checked: view.picked.has(row.key), title: "Draw its curve" });
    box.setAttribute("aria-label", `Draw ${row.key}`);
    if (color !== undefined) label.classList.add("charted", `tone${color}`);
    box.addEventListener("click", (event) => view.onTick(row, event.shiftKey));
  } };
}

function named(cell, { run }) {
  cell.className = run.label ? "" : "mono id";
  cell.textContent = run.label || run.id;
  cell.title = run.name;
}

function tags(all) {
  return { key: "tag", title: "tags", width: width(all.map((run) => run.tags.join("  "))), fill: (cell, row) => {
    cell.className = "tags";
    for (const tag of row.run.tags) make(cell, "span", "", tag);
  } };
}

function stateColumn() {
  return { key: "state", title: "state", width: 98, fill: (cell, row) => {
    const state = row.run.reading ? "reading" : row.run.state;
    make(cell, "span", `state ${state}`, state);
  } };
}

function progress() {
  return { key: "iteration", title: "iterations", width: 104, right: true, fill: (cell, row) => {
    const [done, of] = row.run.iterations;
    cell.className = "right progress";
    if (done < of) Object.assign(make(cell, "progress", ""), { max: of, value: done });
    make(cell, "span", "", of ? `${done} / ${of}` : String(done));
  } };
}

function goalColumn(view, all) {
  const names = new Set(all.filter((run) => run.goal[1] !== null).map((run) => run.goal[0]));
  const title = names.size === 1 ? [...names][0].split("/").pop() : GOAL;
  return { key: GOAL, title, hint: [...names].join(", ") || GOAL, width: width([title, "0.0000"], 76), right: true, fill: (cell, row) => {
    cell.className = "right strong";
    cell.textContent = row.run.goal[1] === null ? "–" : short(row.run.goal[1]);
    cell.title = row.run.goal[0];
  } };
}

function links() {
  return { key: "files", title: "", width: 112, fill: (cell, row) => {
    cell.className = "links";
    for (const [file, word] of LINKS) {
      if (row.run.files.includes(file)) link(cell, row.run, file, word);
    }
  } };
}

export function link(parent, run, file, word) {
  const node = make(parent, "a", "", word);
  node.href = `/runs/${run.name.split("/").map(encodeURIComponent).join("/")}/${file}`;
  Object.assign(node, { target: "_blank", rel: "noopener noreferrer" });
  return node;
}

// Rows are groups {key, values, runs, figures} and, below those that are open, their runs {key, run}.
export function groupColumns(view) {
  const { by, groups, rows } = view;
  const titles = by.map((name) => view.runs.brief(name));
  const drawn = groups.flatMap((group) => [group.figures?.low ?? group.figures?.middle, group.figures?.high ?? group.figures?.middle]);
  const finite = drawn.filter((v) => v !== undefined && v !== null);
  const range = [Math.min(...finite), Math.max(...finite)];
  const number = (key, title, hint, of) => ({
    key, title, hint, right: true, width: width([title, "0.000"], 58),
    fill: (cell, row) => (cell.textContent = row.run ? "" : of(row)),
  });
  const shown = (value) => (value === null || value === undefined ? "–" : short(value));
  return [
    tick(view),
    ...by.map((name, i) => ({
      key: name, title: titles[i], hint: name, grows: i === 0,
      width: width([titles[i], ...groups.map((group) => group.values[i])], i ? 70 : by.length > 1 ? 96 : 190, 260),
      fill: (cell, row) => groupCell(cell, row, i, by.length),
    })),
    number("runs", "runs", "How many runs have a value", (row) => String(row.figures?.runs ?? "…")),
    { key: "middle", title: view.metricName.split("/").pop(), hint: `Interquartile mean over the runs: ${view.metricName}`, right: true,
      width: width([view.metricName.split("/").pop(), "0.0000"], 76, 160),
      fill: (cell, row) => {
        cell.className = "right strong";
        cell.textContent = row.run ? shown(view.value(row.run)) : shown(row.figures?.middle);
      } },
    { key: "low", title: "95 % interval", hint: "Percentile bootstrap interval of the interquartile mean", right: true, width: 136,
      fill: (cell, row) => {
        const { low, high } = row.figures ?? {};
        if (row.run) links().fill(cell, row);
        else cell.textContent = low === null || low === undefined ? "–" : `${short(low)} to ${short(high)}`;
      } },
    { key: "plot", title: "", width: 120, fill: (cell, row) => whisker(cell, row, range, view) },
    number("least", "least", "The smallest value of a run", (row) => shown(row.figures?.least)),
    number("most", "most", "The largest value of a run", (row) => shown(row.figures?.most)),
  ];
}

// A run of a group has its id in the place of the group's values.
function groupCell(cell, row, i, count) {
  if (row.run) {
    named(cell, row);
    cell.classList.add("inner");
    cell.hidden = i > 0;
    cell.style.gridColumn = `span ${count}`;
    return;
  }
  if (i === 0) make(cell, "span", "caret", row.isOpen ? "▾" : "▸");
  make(cell, "span", "", row.values[i]);
}

// A dot for the interquartile mean and a line for its interval, all groups on one scale.
function whisker(cell, row, [least, most], view) {
  cell.className = "whisker";
  const span = most - least || 1;
  const at = (v) => `${4 + (92 * (v - least)) / span}%`;
  const { low, high, middle } = row.figures ?? {};
  const color = view.colors.get(row.key);
  const tone = color === undefined ? "" : ` tone${color}`;
  if (row.run) {
    const value = view.value(row.run);
    if (value === undefined || value < least - 0.04 * span || value > most + 0.04 * span) return;
    make(cell, "i", "dot small").style.left = at(value);
    return;
  }
  if (middle === undefined || middle === null) return;
  if (low !== null && low !== undefined) {
    const line = make(cell, "i", `line${tone}`);
    line.style.left = at(low);
    line.style.right = `${100 - parseFloat(at(high))}%`;
  }
  make(cell, "i", `dot${tone}`).style.left = at(middle);
}
