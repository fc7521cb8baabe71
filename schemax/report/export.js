// The rows that are shown, as files.

const valueNow = (row, field) => {
  if (!row.labels?.has(field)) return row.cell(field)?.v ?? null;
  return row.labels.get(field);
};

const fieldsShown = () => grid.columns.map(({ by }) => by).filter((by) => typeof by === "number");

function rowsAsCsv() {
  const quoted = (text) => (/[",;\t\r\n]|^\s|\s$/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const fields = fieldsShown();
  const lines = [["id", "index", ...fields.map((field) => data.fields[field])]];
  for (const row of grid.shown) {
    lines.push([row.id ?? "", String(row.index), ...fields.map((field) => labelOf(valueNow(row, field)) ?? "")]);
  }
  return lines.map((cells) => cells.map(quoted).join(",")).join("\n") + "\n";
}

function rowsAsLines() {
  const plain = (row) => {
    const fields = row.layout === null ? [] : layouts[row.layout].fields;
    const attributes = Object.fromEntries(fields.map((field) => [data.fields[field], valueNow(row, field)]));
    const errors = [...row.problems, ...row.cells.flatMap((cell) => cell.errors ?? [])];
    return {
      id: row.id, index: row.index, attributes: row.failed ? null : attributes,
      errors: errors.map(([field, message, raw]) => ({ field, message, raw })),
    };
  };
  return grid.shown.map((row) => JSON.stringify(plain(row)) + "\n").join("");
}

/** Documents with corrections or that were found right; of all rows, since a filter may hide some. */
const labelled = () => rows.filter((row) => isLabelled(row) && row.layout !== null && row.texts.length);

const EXPORTS = {
  csv: () => download("rows.csv", "text/csv", rowsAsCsv()),
  jsonl: () => download("rows.jsonl", "application/x-ndjson", rowsAsLines()),
  annotated: () => {
    download("annotated.jsonl", "application/x-ndjson", labelled().map((row) => JSON.stringify(annotated(row)) + "\n").join(""));
    unsaved = false;
  },
  studio: () => {
    const chosen = labelled().length ? labelled() : grid.shown.filter((row) => row.layout !== null && row.texts.length);
    download("label-studio.json", "application/json", JSON.stringify(chosen.map(labelStudioTask), null, 1));
  },
};

function setUpExport() {
  find("export").addEventListener("change", () => {
    const kind = find("export").value;
    find("export").value = "";
    EXPORTS[kind]?.();
  });
}
