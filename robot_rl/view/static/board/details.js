// What is known of one run, and what differs between two.
/* global short */

import { link } from "./columns.js";
import { ago, ask, make, text } from "./data.js";

const MOST_LINES = 400;

export class Details {
  // onClose(): it shall be closed; onDelete(run): a run shall be deleted; onChange(): a run has other labels.
  constructor(element, { onClose, onDelete, onChange }) {
    Object.assign(this, { element, onClose, onDelete, onChange, shown: "" });
  }

  // Shows a run; again only where it has changed.
  async show(run, runs) {
    const key = run ? `${run.name} ${run.version}` : "";
    if (key === this.shown) return;
    const isSame = run && this.shown.startsWith(`${run.name} `);
    this.shown = key;
    if (!run) return this.element.replaceChildren();
    let found;
    try {
      found = await ask(`run?${new URLSearchParams({ run: run.name })}`);
    } catch (error) {
      found = { settings: {}, record: {}, last: {}, evaluation: {}, words: run.id, error: error.message };
    }
    if (this.shown !== key) return;
    const kept = isSame ? { video: this.element.querySelector("video"), labels: this.element.querySelector("form") } : {};
    this.element.replaceChildren();
    this.fill(run, found, runs, kept);
  }

  fill(run, found, runs, kept) {
    const head = make(this.element, "div", "heading");
    make(head, "h2", "", run.label || run.task);
    make(head, "code", "", run.id);
    const remove = make(head, "button", "remove", "Delete");
    remove.title = "Move it to the trash below the root";
    remove.addEventListener("click", () => this.onDelete(run));
    const close = make(head, "button", "close", "×");
    close.title = "Close";
    close.addEventListener("click", () => this.onClose());
    this.facts(run, found, runs);
    // Words that are being written stay.
    if (kept.labels?.contains(document.activeElement)) this.element.append(kept.labels);
    else this.labels(run, found);
    this.files(run, found, kept.video);
    this.evaluation(found.evaluation);
    lines(this.element, "Last values", Object.entries(found.last).map(([name, value]) => [name, short(value)]));
    lines(this.element, "Settings", Object.entries(found.settings).map(([name, value]) => [name, text(value)]));
    const record = ["versions", "machine", "git"].flatMap((part) =>
      Object.entries(found.record[part] ?? {}).map(([name, value]) => [name, text(value)]));
    lines(this.element, "Versions and machine", record);
  }

  facts(run, found, runs) {
    const [done, of] = run.iterations;
    const rows = [["State", run.reading ? "its settings are being read" : run.state], ["Iterations", of ? `${done} of ${of}` : done]];
    if (run.goal[1] !== null) rows.push([run.goal[0], short(run.goal[1])]);
    for (const name of ["seed", "learner", "engine", "num_envs"])
      if (runs.setting(run, name) !== undefined) rows.push([name, text(runs.setting(run, name))]);
    rows.push(["Created", run.created.slice(0, 16).replace("T", " ") || "–"], ["Changed", ago(runs.now - run.changed)]);
    if (found.record.git?.commit) rows.push(["Commit", String(found.record.git.commit).slice(0, 10) + (found.record.git.dirty ? ", changed" : "")]);
    const list = make(this.element, "dl", "facts");
    for (const [name, value] of rows) {
      const row = make(list, "div", "");
      make(row, "dt", "", name);
      make(row, "dd", "", value);
    }
  }

  labels(run, found) {
    const form = make(this.element, "form", "labels");
    const field = (kind, title, value, hint) => {
      const label = make(form, "label", "");
      make(label, "span", "", title);
      return Object.assign(make(label, kind, ""), { value: value ?? "", placeholder: hint, spellcheck: false });
    };
    const name = field("input", "Name", run.label, run.id);
    const tags = field("input", "Tags", run.tags.join(" "), "paper baseline");
    const note = field("textarea", "Note", found.note, "");
    const line = make(form, "p", "soft");
    line.setAttribute("role", "status");
    const save = async () => {
      const words = tags.value.split(/[\s,]+/).filter(Boolean);
      try {
        await ask("label", { run: run.name, name: name.value.trim(), tags: words, note: note.value });
        line.textContent = "saved";
        this.onChange();
      } catch (error) {
        line.textContent = error.message;
      }
    };
    form.addEventListener("change", save);
    form.addEventListener("submit", (event) => event.preventDefault());
  }

  files(run, found, kept) {
    const bar = make(this.element, "p", "files");
    if (run.files.includes("report.html")) link(bar, run, "report.html", "Report");
    link(bar, run, "run.yaml", "run.yaml");
    if (run.files.includes("eval.json")) link(bar, run, "eval.json", "eval.json");
    const commands = ["report.html", "video.mp4"].filter((file) => !run.files.includes(file));
    for (const file of commands) make(bar, "code", "", `robot-rl ${file.split(".")[0]} run=${found.words}`);
    if (!run.files.includes("video.mp4")) return;
    if (kept) return void this.element.append(kept);
    const video = make(this.element, "video", "");
    video.src = link(document.createElement("p"), run, "video.mp4", "").href;
    Object.assign(video, { controls: true, loop: true, muted: true, preload: "metadata" });
    video.setAttribute("aria-label", `Video of ${run.id}`);
  }

  evaluation(found) {
    const policies = Object.keys(found);
    if (!policies.length) return;
    const names = [...new Set(policies.flatMap((policy) => Object.keys(found[policy])))];
    const number = ([mean, std]) => (std === null || std === undefined ? short(mean ?? null) : `${short(mean ?? null)} ± ${short(std)}`);
    const rows = names.map((name) => [name, ...policies.map((policy) => (found[policy][name] ? number(found[policy][name]) : "–"))]);
    table(this.element, "Evaluation", ["", ...policies], rows);
  }
}

function lines(parent, title, rows) {
  if (!rows.length) return;
  const box = make(parent, "details", "lines");
  make(box, "summary", "", `${title} (${rows.length})`);
  box.addEventListener("toggle", () => {
    if (!box.open || box.children.length > 1) return;
    const search = make(box, "input", "");
    Object.assign(search, { type: "search", placeholder: "Search" });
    const list = make(box, "dl", "");
    const fill = () => {
      list.replaceChildren();
      for (const [name, value] of rows.filter((row) => row.join(" ").toLowerCase().includes(search.value.toLowerCase())).slice(0, MOST_LINES)) {
        make(list, "dt", "", name);
        make(list, "dd", "", value);
      }
    };
    search.addEventListener("input", fill);
    fill();
  });
}

function table(parent, title, head, rows) {
  make(parent, "h3", "", title);
  const element = make(parent, "table", "");
  const line = make(make(element, "thead", ""), "tr", "");
  for (const name of head) make(line, "th", "", name);
  const body = make(element, "tbody", "");
  for (const row of rows) {
    const tr = make(body, "tr", "");
    row.forEach((cell, i) => make(tr, i ? "td" : "th", "", cell));
  }
}

export class Diff {
  constructor(element) {
    Object.assign(this, { element, shown: "" });
  }

  async show(pair) {
    const key = pair.map((run) => `${run.name} ${run.reading}`).join(" ");
    if (key === this.shown) return;
    this.shown = key;
    if (!pair.length) return this.element.replaceChildren();
    const found = await ask(`diff?${new URLSearchParams({ one: pair[0].name, other: pair[1].name })}`);
    if (this.shown !== key) return;
    this.element.replaceChildren();
    const head = make(this.element, "div", "heading");
    make(head, "h2", "", "What differs");
    const parts = Object.entries(found);
    for (const [part, rows] of parts) {
      const shown = rows.map(([name, one, other]) => [name, text(one ?? undefined), text(other ?? undefined)]);
      if (rows.length) table(this.element, part, ["", ...pair.map((run) => run.id)], shown);
    }
    const same = parts.filter(([, rows]) => !rows.length).map(([part]) => part);
    if (same.length) make(this.element, "p", "soft", `The same: ${same.join(", ")}`);
  }
}
