// What is shown, in the address's hash: a copied address shows the same.

const LISTS = ["states", "by", "columns", "metrics", "picked"];
const METRICS = ["goal", "episode/return"];
const DEFAULTS = { filter: "", task: "", sort: "-created", axis: "iteration", open: "", smooth: true, log: false };

export function read() {
  const words = new URLSearchParams(location.hash.slice(1));
  const state = { ...DEFAULTS };
  for (const key of Object.keys(DEFAULTS)) {
    if (!words.has(key)) continue;
    state[key] = typeof DEFAULTS[key] === "boolean" ? words.get(key) === "true" : words.get(key);
  }
  for (const key of LISTS) state[key] = words.has(key) ? words.getAll(key).filter(Boolean) : [];
  // Without a choice those columns are shown that differ.
  if (!words.has("columns")) state.columns = null;
  if (!state.metrics.length) state.metrics = [...METRICS];
  if (!["iteration", "env_steps", "time_s"].includes(state.axis)) state.axis = DEFAULTS.axis;
  return state;
}

export function write(state) {
  const words = new URLSearchParams();
  for (const [key, value] of Object.entries(DEFAULTS)) if (state[key] !== value) words.set(key, state[key]);
  for (const key of LISTS) for (const value of state[key] ?? []) words.append(key, value);
  if (state.columns?.length === 0) words.set("columns", "");
  if (state.metrics.join() === METRICS.join()) words.delete("metrics");
  const hash = words.toString().replaceAll("%2F", "/").replaceAll("%3D", "=").replaceAll("%2C", ",");
  if (hash !== location.hash.slice(1)) history.replaceState(null, "", `#${hash}`);
}
