// A field's values in the panel, over the rows that the other filters let through.

const MOST_VALUES = 40;
const BINS = 20;

function distributionView(field) {
  // A value chosen here must not hide the others that could be chosen.
  const only = filter.only?.field === field ? null : filter.only;
  const cells = rows.filter((row) => passes(row, only)).map((row) => row.cell(field)).filter(Boolean);
  const stated = cells.filter((cell) => !isNull(cell));
  const parts = [make("p", { classes: "excerpt", text: `Over ${counted(cells.length, "document")}` })];
  parts.push(make("h3", { text: "States" }));
  for (const [state, [words, test]] of Object.entries(STATES)) {
    const count = cells.filter(test).length;
    if (state !== "any" && (count || state === "stated" || state === "null")) {
      const pressed = filter.state === state && filter.field === field;
      parts.push(tally(words, count, cells.length, pressed, () => setState(field, pressed ? "any" : state)));
    }
  }
  const numbers = stated.filter(isNumber).map((cell) => cell.v);
  if (numbers.length > 1 && numbers.length * 2 > stated.length) parts.push(...numberHistogram(field, numbers));
  const known = cells.filter((cell) => cell.c !== undefined).map((cell) => cell.c);
  if (known.length) {
    parts.push(make("h3", { text: "Confidence" }));
    parts.push(...histogram(field, known, 0, 1, (cell) => cell.c, "confidence"));
  }
  parts.push(...topValues(field, stated));
  return [distributionTop(field), make("div", { classes: "list" }, ...parts)];
}

function distributionTop(field) {
  const select = make("select", { "aria-label": "Field", onchange: () => panel.distribution(Number(select.value)) });
  for (const { by, title } of grid.columns) {
    if (typeof by === "number") select.append(make("option", { value: by, text: title }));
  }
  select.value = field;
  return panelTop(select);
}

function topValues(field, stated) {
  const counts = new Map();
  for (const cell of stated) {
    for (const text of new Set(itemsOf(cell))) counts.set(text, (counts.get(text) ?? 0) + 1);
  }
  const sorted = [...counts].sort((a, b) => b[1] - a[1] || collator.compare(a[0], b[0]));
  const parts = [make("h3", { text: `Values · ${sorted.length.toLocaleString("en")} different` })];
  const most = sorted[0]?.[1] ?? 1;
  for (const [text, count] of sorted.slice(0, MOST_VALUES)) {
    const label = `${data.fields[field]} = ${text}`;
    const test = (cell) => cell !== undefined && !isNull(cell) && itemsOf(cell).includes(text);
    parts.push(tally(text, count, most, filter.only?.label === label, () => setOnly({ field, label, test })));
  }
  const left = sorted.length - MOST_VALUES;
  if (left > 0) parts.push(make("p", { classes: "excerpt", text: `and ${counted(left, "more value")}` }));
  return parts;
}

/** The texts of a value; of a list, one per item. */
function itemsOf(cell) {
  return Array.isArray(cell.v) ? cell.v.map(show) : [textOf(cell)];
}

function tally(what, count, most, pressed, onclick) {
  const bar = make("i", { "aria-hidden": true });
  bar.style.setProperty("--share", most ? count / most : 0);
  return make("button", { type: "button", classes: "tally", "aria-pressed": pressed, title: what, onclick },
    bar,
    make("span", { classes: "what", text: what }),
    make("span", { classes: "figure", text: count.toLocaleString("en") }));
}

function numberHistogram(field, numbers) {
  const sorted = numbers.toSorted((a, b) => a - b);
  const low = sorted[0];
  const high = sorted[sorted.length - 1];
  const middle = sorted[Math.floor(sorted.length / 2)];
  const head = make("h3", { text: `Numbers · median ${short(middle)}` });
  if (low === high) return [];
  const valueOf = (cell) => (isNumber(cell) ? cell.v : undefined);
  return [head, ...histogram(field, numbers, low, high, valueOf, data.fields[field])];
}

/** Bars over equal ranges from low to high; a click keeps the rows of a range. */
function histogram(field, numbers, low, high, valueOf, name) {
  const counts = new Array(BINS).fill(0);
  const binOf = (value) => Math.min(BINS - 1, Math.floor(((value - low) / (high - low)) * BINS));
  for (const value of numbers) counts[binOf(value)]++;
  const most = Math.max(...counts);
  const bars = counts.map((count, bin) => {
    const edge = (place) => short(low + ((high - low) * place) / BINS);
    const label = `${name} ${edge(bin)} to ${edge(bin + 1)}`;
    const test = (cell) => {
      const value = cell && valueOf(cell);
      return value !== undefined && binOf(value) === bin;
    };
    const bar = make("i");
    bar.style.setProperty("--share", count / most);
    return make("button", {
      type: "button", classes: count ? "some" : undefined, title: `${label}: ${count.toLocaleString("en")}`,
      "aria-pressed": filter.only?.label === label, onclick: () => setOnly({ field, label, test }),
    }, bar);
  });
  return [
    make("div", { classes: "histogram" }, ...bars),
    make("div", { classes: "scale" }, make("span", { text: short(low) }), make("span", { text: short(high) })),
  ];
}

function short(number) {
  return Number(number.toPrecision(3)).toLocaleString("en", { maximumSignificantDigits: 3 });
}
