// Corrections: what a reader says is right, and files of annotated documents made of that.

let unsaved = false;

/** What a label says of a value: text, or null; of a list its JSON. */
function labelOf(value) {
  if (value === null || value === undefined || (Array.isArray(value) && !value.length)) return null;
  return typeof value === "string" ? value : JSON.stringify(value);
}

const isLabelled = (row) => row.checked === true || row.labels !== undefined;

function label(row, field, text) {
  (row.labels ??= new Map()).set(field, text);
  unsaved = true;
  grid.repaint();
  panel.draw();
}

/** What stands below the chosen field: the value as a text to correct. */
function correction(row, field) {
  const now = row.labels?.has(field) ? row.labels.get(field) : labelOf(row.cell(field).v);
  const name = `Correct ${data.fields[field]}`;
  const input = make("input", { type: "text", "aria-label": name, placeholder: "null", spellcheck: "false" });
  input.value = now ?? "";
  input.addEventListener("change", () => label(row, field, input.value === "" ? null : input.value));
  const none = make("button", { type: "button", text: "null", title: "The text states no value", onclick: () => label(row, field, null) });
  return make("div", { classes: "correct" }, input, none);
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
  const { name, fields } = layouts[row.layout];
  const attributes = {};
  for (const field of fields) {
    attributes[data.fields[field]] = row.labels?.has(field) ? row.labels.get(field) : labelOf(row.cell(field).v);
  }
  return { id: row.id ?? String(row.index), category: name ?? "rows", text: joinedText(row).text, attributes };
}

/** A task of Label Studio; values that were found are regions of the text, all are texts. */
function labelStudioTask(row) {
  const { id, category, text, attributes } = annotated(row);
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
    data: { id, category, text, fields: Object.keys(attributes) },
    predictions: [{ model_version: "schemax", result: [...regions, ...texts] }],
  };
}

addEventListener("beforeunload", (event) => unsaved && event.preventDefault());
