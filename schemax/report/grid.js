// The table. Only rows in sight are in the page: the row at position p uses element p modulo their
// number, so that scrolling fills anew just those that come into sight.

const HEIGHT = 30; // of a row, as in page.css
const SPARE = 6; // rows beyond either edge

const grid = {
  element: find("grid"),
  head: find("head"),
  body: find("body"),
  shown: rows, // the rows that pass the filter, in order
  columns: [],
  pool: [], // elements of rows, each with the position that it shows
  at: { row: 0, column: 0 },

  /** Columns and their widths, for the schema that is chosen or for all of them. */
  layOut() {
    const fields = filter.layout === null ? data.fields.keys() : layouts[filter.layout].fields;
    this.columns = [{ by: "document", title: "Document" }];
    if (hasConfidence) this.columns.push({ by: "lowest", title: "Lowest" });
    for (const field of fields) this.columns.push({ by: field, title: data.fields[field] });
    const widths = this.columns.map((column) => this.widthOf(column));
    const tracks = widths.map((width, place) => (place + 1 < widths.length ? `${width}px` : `minmax(${width}px, 1fr)`));
    this.element.style.setProperty("--columns", tracks.join(" "));
    this.element.style.setProperty("--width", `${widths.reduce((sum, width) => sum + width)}px`);
    this.element.setAttribute("aria-colcount", this.columns.length);
    this.at.column = Math.min(this.at.column, this.columns.length - 1);
    this.pool = [];
    this.body.replaceChildren();
    this.head.replaceChildren(this.headRow());
  },

  /** Room for nine of ten values, within reason. */
  widthOf({ by, title }) {
    if (by === "document") return window.innerWidth < 800 ? 150 : 260;
    if (by === "lowest") return 84;
    const step = Math.ceil(rows.length / 500);
    const lengths = [];
    for (let i = 0; i < rows.length; i += step) {
      const cell = rows[i].cell(by);
      if (cell && !isNull(cell)) lengths.push(textOf(cell).length);
    }
    lengths.sort((a, b) => a - b);
    const usual = lengths[Math.floor(lengths.length * 0.9)] ?? 0;
    return Math.round(Math.min(260, Math.max(80, title.length * 7.5 + 52, usual * 7.2 + 24)));
  },

  headRow() {
    const cells = this.columns.map(({ by, title }, place) => {
      const cell = make("div", { role: "columnheader", classes: "cell", "aria-colindex": place + 1, title });
      cell.append(make("span", { classes: "label", text: title }));
      cell.addEventListener("click", () => sortBy(by));
      if (typeof by === "number") {
        const open = (event) => (event.stopPropagation(), panel.distribution(by));
        const label = `Distribution of ${title}`;
        cell.append(make("button", {
          type: "button", classes: "chart", tabindex: -1, title: `${label} (d)`, "aria-label": label, onclick: open,
        }));
      }
      return cell;
    });
    return make("div", { role: "row", classes: "row", "aria-rowindex": 1 }, ...cells);
  },

  /** After the filter or the order changed; stays on the same document where that is possible. */
  refresh() {
    const current = this.shown[this.at.row];
    this.shown = shownRows();
    this.at.row = Math.max(0, this.shown.indexOf(current));
    this.body.style.height = `${this.shown.length * HEIGHT}px`;
    this.element.setAttribute("aria-rowcount", this.shown.length + 1);
    this.columns.forEach(({ by }, place) => {
      const sorted = order.by === by ? (order.down ? "descending" : "ascending") : "none";
      this.head.firstChild.children[place].setAttribute("aria-sort", sorted);
    });
    find("none").hidden = this.shown.length > 0;
    this.revealRow();
    this.repaint();
  },

  repaint() {
    for (const element of this.pool) element.position = -1;
    this.paint();
  },

  paint() {
    const { scrollTop, clientHeight } = this.element;
    const size = Math.ceil(clientHeight / HEIGHT) + 2 * SPARE;
    if (this.pool.length !== size) this.makePool(size);
    const first = Math.max(0, Math.min(Math.floor(scrollTop / HEIGHT) - SPARE, this.shown.length - size));
    for (let position = first; position < first + size; position++) {
      const element = this.pool[position % size];
      if (element.position !== position) this.fill(element, position);
    }
  },

  makePool(size) {
    this.pool = Array.from({ length: size }, () => {
      const cells = this.columns.map(({ by }, place) => {
        const parts = by === "document" ? ["id", "excerpt"] : ["value"];
        const cell = make("div", { role: "gridcell", "aria-colindex": place + 1 });
        cell.append(...parts.map((classes) => make("span", { classes })));
        return cell;
      });
      return Object.assign(make("div", { role: "row", classes: "row" }, ...cells), { position: -1 });
    });
    this.body.replaceChildren(...this.pool);
  },

  fill(element, position) {
    const row = this.shown[position];
    element.position = position;
    element.hidden = row === undefined;
    if (row === undefined) return;
    element.style.transform = `translateY(${position * HEIGHT}px)`;
    element.setAttribute("aria-rowindex", position + 2);
    let target = element.firstChild;
    this.columns.forEach(({ by }, place) => {
      target.id = `r${position}c${place}`;
      if (by === "document") fillDocument(target, row);
      else fillCell(target, by === "lowest" ? lowestCell(row) : row.cell(by));
      target = target.nextSibling;
    });
    this.point(element);
  },

  /** Shows whether the cursor is in this row, and where. */
  point(element) {
    const here = element.position === this.at.row;
    if (!here && !element.classList.contains("at")) return;
    element.classList.toggle("at", here);
    element.setAttribute("aria-selected", here);
    [...element.children].forEach((cell, place) => cell.classList.toggle("at", here && place === this.at.column));
    if (here) this.element.setAttribute("aria-activedescendant", `r${element.position}c${this.at.column}`);
  },

  /** Moves the cursor, as far as the table goes, and brings it into sight. */
  moveTo(row, column) {
    this.at.row = Math.max(0, Math.min(row, this.shown.length - 1));
    this.at.column = Math.max(0, Math.min(column, this.columns.length - 1));
    this.revealRow();
    this.revealColumn();
    this.paint();
    this.pool.forEach((one) => this.point(one));
    panel.follow();
  },

  revealRow() {
    const { element } = this;
    const top = this.at.row * HEIGHT;
    const room = element.clientHeight - this.head.offsetHeight;
    element.scrollTop = Math.min(top, Math.max(top + HEIGHT - room, element.scrollTop));
  },

  /** The first column is always in sight, and covers what lies under it. */
  revealColumn() {
    if (this.at.column === 0) return;
    const { element } = this;
    const [first, ...others] = this.head.firstChild.children;
    const { offsetLeft, offsetWidth } = others[this.at.column - 1];
    const right = offsetLeft + offsetWidth - element.clientWidth;
    element.scrollLeft = Math.min(offsetLeft - first.offsetWidth, Math.max(right, element.scrollLeft));
  },

  /** The title of a cell that is pointed at. */
  explain(place) {
    const row = this.shown[place.row];
    const { by } = this.columns[place.column];
    if (by === "document") return row.problems.map(([, message]) => message).join("; ");
    const cell = by === "lowest" ? lowestCell(row) : row.cell(by);
    return cell ? describe(cell) : "";
  },

  /** The place of an event in the table, or null. */
  placeOf(event) {
    const cell = event.target.closest("[role=gridcell]");
    return cell && { row: cell.parentElement.position, column: [...cell.parentElement.children].indexOf(cell) };
  },

  get row() {
    return this.shown[this.at.row];
  },

  /** The number of the field under the cursor, or null. */
  get field() {
    const { by } = this.columns[this.at.column];
    return typeof by === "number" ? by : null;
  },
};

function fillDocument(target, row) {
  target.className = row.failed || row.problems.length ? "cell error" : "cell";
  target.firstChild.textContent = row.name;
  target.lastChild.textContent = row.excerpt.slice(0, 300);
}

function fillCell(target, cell) {
  target.className = cell ? `cell ${classesOf(cell).join(" ")}` : "cell absent";
  if (cell && cell.c !== undefined) target.style.setProperty("--confidence", cell.c);
  target.firstChild.textContent = !cell ? "" : isNull(cell) ? "–" : textOf(cell).slice(0, 300);
}

/** A row's lowest confidence, looking like a value; undefined if it has none. */
function lowestCell(row) {
  const { lowest } = row;
  return lowest === undefined ? undefined : { v: lowest, text: lowest.toFixed(2), c: lowest };
}
