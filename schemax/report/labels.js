// Corrections: what a reader says is right, and files of annotated documents made of that.

let unsaved = false;

/** A value as a label: text, or null; a list as its JSON. */
function labelOf(value) {
  if (value === null || value === undefined || (Array.isArray(value) && !value.length)) return null;
  return typeof value === "string" ? value : JSON.stringify(value);
}

const isLabelled = (row) => row.checked === true || row.labels !== undefined;

function label(row, field, value) {
  (row.labels ??= new Map()).set(field, value);
  unsaved = true;
  grid.repaint();
  panel.draw();
}

const NULL = "null";
const TYPES = {
  integer: { said: "a whole number", reads: (text) => (/^[-+]?\d+$/.test(text) ? exact(text) : undefined) },
  number: { said: "a number, with a point before decimals", reads: (text) => (/^[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?$/.test(text) ? exact(text) : undefined) },
  boolean: { choices: ["true", "false"], reads: (text) => ({ true: true, false: false })[text] },
  date: { said: "a date such as 2024-06-09", reads: (text) => (isDay(text) ? text : undefined) },
  datetime: { said: "a date and time such as 2024-06-09T12:00", reads: (text) => (isNaN(Date.parse(text.replace(" ", "T"))) ? undefined : text) },
  json: { said: "JSON", reads: parsed },
  choice: { said: "one of the choices", reads: (text, { o }) => (o.includes(text) ? text : undefined) },
  text: { reads: (text) => text },
};

/** A number that JavaScript holds as it is written; else its text. */
const exact = (text) => (Number.isSafeInteger(Number(text)) || /[.eE]/.test(text) ? Number(text) : text);

function isDay(text) {
  const day = /^\d{4}-\d\d-\d\d$/.test(text) ? new Date(`${text}T00:00:00Z`) : null;
  return day !== null && !isNaN(day) && day.toISOString().startsWith(text);
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

const editorOf = (row, field) => layouts[row.layout].editors[field] ?? {};

/** A reader's text as a value of the field's type, or {problem}. */
function valueOf(text, editor) {
  if (text.trim() === "") return { value: null };
  const type = TYPES[editor.t ?? "text"];
  const parts = editor.l ? text.split("\n").map((part) => part.trim()).filter(Boolean) : [editor.t ? text.trim() : text];
  const values = parts.map((part) => type.reads(part, editor));
  const wrong = values.indexOf(undefined);
  if (wrong >= 0) return { problem: `${parts[wrong]}: expected ${type.said ?? type.choices.join(" or ")}` };
  return { value: editor.l ? values : values[0] };
}

/** A value as a reader edits it: of a list one item a line. */
function editable(value, editor) {
  if (editor.l && Array.isArray(value)) return value.map((item) => labelOf(item) ?? "").join("\n");
  return labelOf(value) ?? "";
}

/** The editor below the chosen field, by the field's type. */
function correction(row, field) {
  const editor = editorOf(row, field);
  const now = editable(row.labels?.has(field) ? row.labels.get(field) : row.cell(field).v, editor);
  const name = `Correct ${data.fields[field]}`;
  const choices = editor.l ? undefined : editor.o ?? TYPES[editor.t ?? "text"].choices;
  const problem = make("p", { classes: "problem", role: "alert" });
  let input;
  if (choices) {
    const known = now === "" || choices.includes(now) ? choices : [now, ...choices];
    input = make("select", { "aria-label": name }, ...["", ...known].map((text) => make("option", { value: text, text: text || NULL })));
  } else if (editor.l || editor.t === "json") {
    input = make("textarea", { "aria-label": name, placeholder: editor.l ? "one item a line" : "JSON", rows: String(Math.min(6, now.split("\n").length + 1)), spellcheck: "false" });
  } else {
    const type = editor.t === "date" && (now === "" || isDay(now)) ? "date" : "text";
    const mode = { integer: "numeric", number: "decimal" }[editor.t];
    input = make("input", { type, inputmode: mode, "aria-label": name, placeholder: NULL, spellcheck: "false" });
  }
  input.value = now;
  input.addEventListener("change", () => {
    const { value, problem: said } = valueOf(input.value, editor);
    problem.textContent = said ?? "";
    input.setAttribute("aria-invalid", String(said !== undefined));
    if (said === undefined) label(row, field, value);
  });
  const unit = editor.u ? [make("span", { classes: "unit", text: editor.u })] : [];
  const none = make("button", { type: "button", text: NULL, title: "The text states no value", onclick: () => label(row, field, null) });
  return make("div", { classes: "correct" }, input, ...unit, none, problem);
}

/** Says that all values of a document are right, as they are now. */
function checkButton(row) {
  const text = row.checked ? "✓ right" : "right?";
  const title = "All values of this document are right, as corrected";
  return make("button", {
    type: "button", text, title, "aria-pressed": row.checked === true,
    onclick: () => ((row.checked = !row.checked), (unsaved = true), panel.draw()),
  });
}

/** The text as the model was shown it, and where each of its parts begins. */
function joinedText(row) {
  if (row.texts.length === 1) return { text: row.texts[0][1], starts: [0] };
  let text = "";
  const starts = [];
  for (const [name, part] of row.texts) {
    text += `${text && "\n"}${name}: `;
    starts.push(text.length);
    text += part;
  }
  return { text, starts };
}

function annotated(row) {
  const { name, fields, schema } = layouts[row.layout];
  const attributes = {};
  for (const field of fields) {
    attributes[data.fields[field]] = labelOf(row.labels?.has(field) ? row.labels.get(field) : row.cell(field).v);
  }
  return { id: row.id ?? String(row.index), category: name ?? "rows", text: joinedText(row).text, attributes, schema };
}

/** A task of Label Studio; values that were found are regions of the text, all are texts. */
function labelStudioTask(row) {
  const { id, category, text, attributes, schema } = annotated(row);
  const { starts } = joinedText(row);
  const letters = (end) => [...text.slice(0, end)].length; // as Python counts
  const regions = layouts[row.layout].fields.flatMap((field) =>
    (row.labels?.has(field) ? [] : row.cell(field).s ?? []).filter(Boolean).map(([start, end, place]) => {
      const [from, to] = [start + starts[place], end + starts[place]];
      const value = { start: letters(from), end: letters(to), text: text.slice(from, to), labels: [data.fields[field]] };
      return { from_name: "label", to_name: "text", type: "labels", value };
    }));
  const texts = Object.entries(attributes).filter(([, value]) => value !== null).map(([name, value]) => (
    { from_name: name, to_name: "text", type: "textarea", value: { text: [value] } }));
  return {
    data: { id, category, text, fields: Object.keys(attributes), schema },
    predictions: [{ model_version: "schemax", result: [...regions, ...texts] }],
  };
}

addEventListener("beforeunload", (event) => unsaved && event.preventDefault());
