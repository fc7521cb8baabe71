// The rows of the page, and what can be asked of a row or of one of its values (a cell).
// Nothing here touches the page; the short keys of the data are explained in rows.py.

const layouts = data.layouts.map((layout) => ({
  name: layout.name,
  fields: layout.fields, // numbers of fields, in the schema's order
  place: new Map(layout.fields.map((field, place) => [field, place])),
  editors: layout.editors ?? {}, // by number of field; see rows.py
  schema: layout.schema ?? undefined, // its declaration, as JSON Schema
}));

class Row {
  constructor(plain) {
    this.index = plain.i;
    this.id = plain.id ?? null;
    this.layout = plain.l ?? null;
    this.cells = plain.c ?? [];
    this.texts = plain.t ?? []; // [name, text]
    this.pages = plain.p ?? []; // [number, image, width, height, marks]
    this.steps = plain.n ?? 0;
    this.failed = plain.x === 1;
    this.problems = []; // of the row as a whole: [field or null, message, raw]
    for (const error of plain.e ?? []) {
      const cell = this.cell(data.fields.indexOf(error[0]));
      if (cell) (cell.errors ??= []).push(error);
      else this.problems.push(error);
    }
  }

  /** The value of a field; undefined if the row's schema lacks the field. */
  cell(field) {
    return this.layout === null ? undefined : this.cells[layouts[this.layout].place.get(field)];
  }

  get name() {
    return this.id ?? `#${this.index}`;
  }

  get excerpt() {
    if (this.texts.length) return this.texts.map(([, text]) => text).join("  ·  ");
    return this.problems.map(([, message]) => message).join("; ");
  }

  get lowest() {
    const known = this.cells.filter((cell) => cell.c !== undefined).map((cell) => cell.c);
    return known.length ? Math.min(...known) : undefined;
  }

  /** All that a search looks at, in lower case; made when first asked for. */
  get haystack() {
    this.hay ??= [this.id ?? "", ...this.texts.map(([, text]) => text), ...this.cells.map(textOf)]
      .concat(this.problems.map(([, message]) => message))
      .join("\n")
      .toLowerCase();
    return this.hay;
  }
}

function show(value) {
  if (value === null || value === undefined) return "";
  if (Array.isArray(value)) return value.map(show).join(", ");
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

function textOf(cell) {
  return (cell.text ??= show(cell.v));
}

const isNull = (cell) => cell.v === undefined || (Array.isArray(cell.v) && cell.v.length === 0);
const isNumber = (cell) => typeof cell.v === "number";

/** States of a value, in the words of the filter. */
const STATES = {
  any: ["is anything", () => true],
  stated: ["is stated", (cell) => !isNull(cell)],
  null: ["is null", isNull],
  error: ["has an error", (cell) => cell.errors !== undefined],
  ungrounded: ["is not in the text", (cell) => cell.g === 0],
  cut: ["ran out of its budget", (cell) => cell.f === "length"],
};

/** The classes that show a cell's state, in the table and in the panel. */
function classesOf(cell) {
  const names = [];
  if (isNull(cell)) names.push("null");
  if (isNumber(cell)) names.push("number");
  for (const state of ["error", "ungrounded", "cut"]) if (STATES[state][1](cell)) names.push(state);
  if (cell.c !== undefined) names.push("known");
  return names;
}

/** A cell's state in words. */
function describe(cell) {
  const parts = [];
  if (cell.c !== undefined) parts.push(`confidence ${cell.c.toFixed(2)}`);
  if (cell.g === 0) parts.push("not in the text");
  if (cell.f === "length") parts.push("ran out of its budget");
  for (const [, message] of cell.errors ?? []) parts.push(message);
  return parts.join("; ");
}

// A stream gives documents as they finish; the page shows them in the order of the input, or ranked.
const rows = data.rows.map((plain) => new Row(plain));
if (!data.ranked) rows.sort((a, b) => a.index - b.index);
delete data.rows;

const hasConfidence = rows.some((row) => row.cells.some((cell) => cell.c !== undefined));
const collator = new Intl.Collator(undefined, { numeric: true });
