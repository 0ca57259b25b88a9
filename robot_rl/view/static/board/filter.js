// The filter: words <name><operator><value> of a column, and other words, which must be in the run's id, name, tags, task or state.

import { text } from "./data.js";

const OPERATORS = {
  "=": (a, b) => same(a, b),
  "!=": (a, b) => !same(a, b),
  "<": (a, b) => order(a, b) < 0,
  "<=": (a, b) => order(a, b) <= 0,
  ">": (a, b) => order(a, b) > 0,
  ">=": (a, b) => order(a, b) >= 0,
};

const plain = (value) => (value === null ? "none" : text(value)).replaceAll(" ", "").replace("−", "-").toLowerCase();

function same(value, wanted) {
  if (value === undefined) return false;
  if (Array.isArray(value) && value.some((part) => plain(part) === plain(wanted))) return true;
  if (typeof value === "number" && wanted.trim() !== "" && !Number.isNaN(Number(wanted))) return value === Number(wanted);
  return plain(value) === plain(wanted);
}

function order(value, wanted) {
  return typeof value === "number" && wanted.trim() !== "" ? value - Number(wanted) : NaN;
}

export const words = (line) => line.match(/(?:"[^"]*"|[^\s"])+/g) ?? [];

export const word = (name, value) => (/[\s"]/.test(value) ? `${name}="${value.replaceAll('"', "")}"` : `${name}=${value}`);

// Returns {matches(run), names: columns that it needs, unknown: names that are none}.
export function parse(line, runs) {
  const tests = [];
  const names = [];
  const unknown = [];
  for (const part of words(line)) {
    const found = part.match(/^([\w./:-]+?)(!=|<=|>=|=|<|>)(.*)$/);
    const bare = (found ? found[3] : part).replaceAll('"', "");
    if (!found) {
      const wanted = bare.toLowerCase();
      tests.push((run) => `${run.id} ${run.label} ${run.tags.join(" ")} ${run.task} ${run.state}`.toLowerCase().includes(wanted));
      continue;
    }
    const name = runs.resolve(found[1]);
    if (name === null) {
      unknown.push(found[1]);
      continue;
    }
    names.push(name);
    const holds = OPERATORS[found[2]];
    if (bare !== "") tests.push((run) => holds(runs.value(run, name), bare));
  }
  return { names, unknown, matches: (run) => tests.every((test) => test(run)) };
}
