// A menu of names to tick, with a box to search in.

import { make } from "./data.js";

const MOST = 200;

export class Menu {
  // options(): [[heading, names]]; chosen(): names that are ticked; onToggle(name).
  constructor(element, { options, chosen, onToggle, note }) {
    Object.assign(this, { element, options, chosen, onToggle, note });
    this.summary = element.querySelector("summary");
    this.panel = make(element, "div", "panel");
    this.search = make(this.panel, "input", "");
    Object.assign(this.search, { type: "search", placeholder: "Search" });
    this.search.setAttribute("aria-label", "Search");
    this.list = make(this.panel, "div", "list");
    this.search.addEventListener("input", () => this.fill());
    element.addEventListener("toggle", () => {
      if (!element.open) return;
      document.querySelectorAll("details.menu[open]").forEach((other) => other !== element && (other.open = false));
      this.search.value = "";
      this.fill();
      this.search.focus();
    });
    document.addEventListener("pointerdown", (event) => element.contains(event.target) || (element.open = false));
    element.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      element.open = false;
      this.summary.focus();
    });
  }

  fill() {
    const wanted = this.search.value.trim().toLowerCase();
    const chosen = this.chosen();
    this.list.replaceChildren();
    for (const [heading, names] of this.options()) {
      const found = names.filter((name) => name.toLowerCase().includes(wanted));
      if (!found.length) continue;
      make(this.list, "p", "", heading);
      for (const name of found.slice(0, MOST)) {
        const label = make(this.list, "label", "");
        const box = make(label, "input", "");
        Object.assign(box, { type: "checkbox", checked: chosen.includes(name) });
        make(label, "span", "", name);
        box.addEventListener("change", () => this.onToggle(name));
      }
      if (found.length > MOST) make(this.list, "p", "", `${found.length - MOST} more: search for them`);
    }
    if (!this.list.children.length) make(this.list, "p", "", "nothing of that name");
  }

  label(words, count) {
    this.summary.textContent = words;
    this.element.classList.toggle("set", count > 0);
  }
}
