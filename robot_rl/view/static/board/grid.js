// A table of which only the rows in sight are in the page. Its arrow keys move a cursor, Enter and space act on its row.

const ROW = 30;
const SPARE = 8;

export class Grid {
  constructor(element, { onSort, onRow, onMove, onTick }) {
    this.element = element;
    this.head = element.querySelector(".head");
    this.body = element.querySelector(".body");
    Object.assign(this, { onSort, onRow, onMove, onTick, columns: [], rows: [], pending: 0, cursor: null });
    element.addEventListener("keydown", (event) => event.target.closest(".head") || this.key(event));
    element.addEventListener("scroll", () => this.later(), { passive: true });
    new ResizeObserver(() => this.later()).observe(element);
  }

  // columns: {key, title, hint, width [px], right, grows, fill(cell, row)}; rows: anything with a key.
  show(columns, rows, sort) {
    Object.assign(this, { columns, rows, sort });
    const widths = columns.map((column) => (column.grows ? `minmax(${column.width}px, 1fr)` : `${column.width}px`));
    this.element.style.setProperty("--columns", widths.join(" "));
    this.element.style.setProperty("--least", `calc(1.6rem + ${columns.reduce((sum, column) => sum + column.width, 0)}px)`);
    this.element.setAttribute("aria-rowcount", rows.length);
    this.element.parentElement.style.setProperty("--rows", rows.length);
    this.head.replaceChildren(...columns.map((column) => this.title(column)));
    this.body.style.height = `${rows.length * ROW}px`;
    this.paint();
  }

  title(column) {
    const cell = document.createElement(column.title ? "button" : "span");
    cell.className = column.right ? "right" : "";
    cell.setAttribute("role", "columnheader");
    if (!column.title) return cell;
    cell.type = "button";
    cell.textContent = column.title;
    cell.title = column.hint ?? column.title;
    const [down, up] = [`-${column.key}`, column.key];
    cell.dataset.key = column.key;
    cell.setAttribute("aria-sort", this.sort === up ? "ascending" : this.sort === down ? "descending" : "none");
    cell.addEventListener("click", () => this.onSort(this.sort === down ? up : down));
    return cell;
  }

  key(event) {
    const { length } = this.rows;
    const at = this.rows.findIndex((row) => row.key === this.cursor);
    const page = Math.max(1, Math.floor(this.element.clientHeight / ROW) - 2);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, PageDown: at + page, PageUp: at - page, Home: 0, End: length - 1 }[event.key];
    const act = { Enter: this.onRow, " ": this.onTick }[event.key];
    if ((to === undefined && !act) || !length || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    if (act) return void (at >= 0 && act(this.rows[at], event.shiftKey));
    const index = Math.max(0, Math.min(length - 1, to));
    this.cursor = this.rows[index].key;
    this.reveal(index);
    this.paint();
    this.onMove(this.rows[index]);
  }

  later() {
    this.pending ||= requestAnimationFrame(() => {
      this.pending = 0;
      this.paint();
    });
  }

  paint() {
    const { scrollTop, clientHeight } = this.element;
    const first = Math.max(0, Math.floor(scrollTop / ROW) - SPARE);
    const last = Math.min(this.rows.length, Math.ceil((scrollTop + clientHeight) / ROW) + SPARE);
    this.body.replaceChildren(...this.rows.slice(first, last).map((row, i) => this.row(row, first + i)));
    // The keys of the table reach what is in its rows.
    for (const part of this.body.querySelectorAll("a, input")) part.tabIndex = -1;
  }

  row(row, index) {
    const line = document.createElement("div");
    line.className = `row ${row.kind ?? ""}`;
    line.setAttribute("role", "row");
    if (row.key === this.cursor) {
      line.classList.add("cursor");
      line.id = "cursor";
      this.element.setAttribute("aria-activedescendant", "cursor");
    }
    line.setAttribute("aria-rowindex", index + 1);
    line.style.top = `${index * ROW}px`;
    for (const column of this.columns) {
      const cell = document.createElement("div");
      cell.setAttribute("role", "gridcell");
      if (column.right) cell.className = "right";
      column.fill(cell, row);
      line.append(cell);
    }
    line.addEventListener("click", (event) => {
      this.cursor = row.key;
      return event.target.closest("a, label, input") || this.onRow(row);
    });
    return line;
  }

  reveal(index) {
    const top = index * ROW;
    const { scrollTop, clientHeight } = this.element;
    if (top < scrollTop) this.element.scrollTop = top;
    else if (top + 2 * ROW > scrollTop + clientHeight) this.element.scrollTop = top + 2 * ROW - clientHeight;
  }
}
