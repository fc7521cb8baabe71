// The filter and the order of rows.

const filter = {
  words: [], // all must be in the row
  layout: null,
  field: null, // null: some field of the row
  state: "any",
  below: 1, // confidence; 1 asks for nothing
  only: null, // {field, label, test}: a value or range chosen in a distribution
};

const order = { by: null, down: false }; // by: null, "document", "lowest" or a field's number

function passes(row, only = filter.only) {
  if (filter.layout !== null && row.layout !== filter.layout) return false;
  if (only && !only.test(row.cell(only.field))) return false;
  if (!passesState(row)) return false;
  return filter.words.every((word) => row.haystack.includes(word));
}

function passesState(row) {
  const { state, below, field } = filter;
  if (state === "any" && below === 1) return true;
  const test = STATES[state][1];
  const fits = (cell) => cell && test(cell) && (below === 1 || (cell.c !== undefined && cell.c < below));
  if (field !== null) return Boolean(fits(row.cell(field)));
  return row.cells.some(fits) || (state === "error" && below === 1 && row.problems.length > 0);
}

/** The rows that pass, sorted; what has no value comes last either way. */
function shownRows() {
  const passed = rows.filter((row) => passes(row));
  if (order.by === null) return passed;
  const keyed = passed.map((row) => [sortKey(row), row]);
  const sign = order.down ? -1 : 1;
  keyed.sort(([a], [b]) => {
    if (a === undefined || b === undefined) return (a === undefined) - (b === undefined);
    return sign * compare(a, b);
  });
  return keyed.map(([, row]) => row);
}

function sortKey(row) {
  if (order.by === "document") return row.id ?? row.index;
  if (order.by === "lowest") return row.lowest;
  const cell = row.cell(order.by);
  if (cell === undefined || isNull(cell)) return undefined;
  return isNumber(cell) ? cell.v : textOf(cell);
}

/** Numbers come before texts. */
function compare(a, b) {
  if (typeof a === "number" && typeof b === "number") return a - b;
  if (typeof a === typeof b) return collator.compare(a, b);
  return typeof a === "number" ? -1 : 1;
}

/** The next of: ascending, descending, the order of the input. */
function turnOrder(by) {
  if (order.by !== by) Object.assign(order, { by, down: false });
  else if (!order.down) order.down = true;
  else Object.assign(order, { by: null, down: false });
}

function isFiltered() {
  return rows.length > 0 && (filter.words.length > 0 || filter.layout !== null || filter.only !== null
    || filter.state !== "any" || filter.below < 1);
}
