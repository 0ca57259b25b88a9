// The runs as the server has them, and the values of their columns.

export const STATES = ["running", "done", "stopped", "empty", "damaged"];
export const GOAL = "goal";

export class Runs {
  constructor() {
    this.asked = [];
    this.reset("");
  }

  reset(id) {
    Object.assign(this, { id, version: 0, bases: Object.create(null), metrics: [], names: new Set(), reading: 0, root: "", now: 0 });
    this.all = new Map();
  }

  // Fetches what has changed; returns the names of the runs that have.
  async poll(metrics) {
    if (metrics.some((name) => !this.asked.includes(name))) this.version = 0;
    if (!this.version) this.asked = metrics;
    const bases = this.version ? Object.keys(this.bases).length : 0;
    const query = new URLSearchParams({ id: this.id, since: this.version, bases, metrics: this.asked.join(",") });
    const reply = await ask(`runs?${query}`);
    if (reply.id !== this.id) this.reset(reply.id);
    const isFull = !this.version;
    const before = isFull ? new Set(this.all.keys()) : new Set(reply.gone);
    for (const run of reply.runs) {
      run.id = run.name.slice(run.name.indexOf("/") + 1);
      run.version = reply.version;
      before.delete(run.name);
      this.all.set(run.name, run);
      for (const key in run.set ?? {}) this.names.add(key);
    }
    for (const name of before) this.all.delete(name);
    for (const [task, base] of Object.entries(reply.bases)) {
      this.bases[task] = base;
      Object.keys(base).forEach((key) => this.names.add(key));
    }
    for (const name of ["root", "run_id"]) this.names.delete(name);
    Object.assign(this, { version: reply.version, metrics: reply.metrics, reading: reply.reading });
    Object.assign(this, { root: reply.root, now: reply.now });
    return [...reply.runs.map((run) => run.name), ...before];
  }

  // A column's value: of the run itself, the newest one of a metric, or of a setting; undefined where there is none.
  value(run, name) {
    switch (name) {
      case "run": return run.label || run.id;
      case "name": return run.label || undefined;
      case "tag": return run.tags.length ? run.tags : undefined;
      case "task": return run.task;
      case "state": return run.state;
      case "iteration": return run.iterations[0];
      case "created": return run.created;
      case "changed": return run.changed;
      case GOAL: return run.goal[1] ?? undefined;
    }
    const metric = this.asked.indexOf(name);
    if (metric >= 0) return run.metrics[metric] ?? undefined;
    return this.setting(run, name);
  }

  setting(run, name) {
    if (!run.set) return undefined;
    if (Object.hasOwn(run.set, name)) return run.set[name];
    const base = this.bases[run.task];
    return !base || run.gone.includes(name) || !Object.hasOwn(base, name) ? undefined : base[name];
  }

  isMetric(name) {
    return this.metrics.includes(name);
  }

  // The full name of a column of which the end may have been given, such as gamma for ppo.gamma; null: there is none.
  resolve(name) {
    const own = ["run", "name", "tag", "task", "state", "iteration", "created", "changed", GOAL];
    if (own.includes(name) || this.names.has(name) || this.isMetric(name)) return name;
    const ends = [...this.names, ...this.metrics].filter((full) => full.endsWith(`.${name}`) || full.endsWith(`/${name}`));
    return ends.length === 1 ? ends[0] : null;
  }

  // The shortest end of a column's name by which it is found.
  brief(name) {
    const starts = [...name.matchAll(/[./]/g)].map((found) => found.index + 1).reverse();
    return starts.map((at) => name.slice(at)).find((end) => this.resolve(end) === name) ?? name;
  }

  // Settings in which runs of the same task differ, those with the fewest values first: name -> Map(value -> count).
  differing(runs) {
    const tasks = new Map();
    for (const run of runs) {
      if (!run.set) continue;
      if (!tasks.has(run.task)) tasks.set(run.task, []);
      tasks.get(run.task).push(run);
    }
    const found = new Map();
    for (const some of tasks.values()) {
      const names = new Set(some.flatMap((run) => [...Object.keys(run.set), ...run.gone]));
      for (const name of names) {
        const counts = new Map();
        for (const run of some) {
          const value = text(this.setting(run, name));
          counts.set(value, (counts.get(value) ?? 0) + 1);
        }
        if (counts.size < 2) continue;
        const all = found.get(name) ?? new Map();
        for (const [value, count] of counts) all.set(value, (all.get(value) ?? 0) + count);
        found.set(name, all);
      }
    }
    return new Map([...found].sort((a, b) => a[1].size - b[1].size));
  }
}

export async function ask(path, body) {
  const headers = { "Content-Type": "application/json", "X-Token": document.querySelector("meta[name=token]").content };
  const options = body && { method: "POST", headers, body: JSON.stringify(body) };
  const reply = await fetch(`/api/${path}`, options);
  const found = await reply.json();
  if (!reply.ok) throw new Error(found.error);
  return found;
}

export function text(value) {
  if (value === undefined) return "–";
  if (value === null) return "none";
  if (typeof value === "number") return String(value).replace(/^-/, "−");
  return typeof value === "object" ? JSON.stringify(value).replaceAll('"', "").replaceAll(",", ", ") : String(value);
}

export function ago(seconds) {
  for (const [unit, size] of [["d", 86400], ["h", 3600], ["min", 60]])
    if (seconds >= size) return `${Math.floor(seconds / size)} ${unit} ago`;
  return `${Math.max(0, Math.floor(seconds))} s ago`;
}

export function compare(a, b) {
  if (typeof a === "number" && typeof b === "number") return a - b;
  return String(a).localeCompare(String(b), "en", { numeric: true });
}

export function make(parent, name, className, content) {
  const node = document.createElement(name);
  if (name === "button") node.type = "button";
  if (className) node.className = className;
  if (content !== undefined) node.textContent = content;
  parent.append(node);
  return node;
}
