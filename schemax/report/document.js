// A document in the panel: its texts with the spans marked, and every field's fate.

function documentView(row, active) {
  const parts = [documentTop(row)];
  if (row.problems.length) parts.push(problemList(row.problems));
  const texts = make("div", { classes: "texts" });
  texts.append(...row.pages.map((page) => pageView(page, active)));
  row.texts.forEach(([name, text], place) => {
    if (row.texts.length > 1) texts.append(make("h3", { text: name }));
    texts.append(make("div", { classes: "document" }, ...markedText(text, spansIn(row, place), active)));
  });
  parts.push(row.texts.length ? texts : make("p", { classes: "excerpt", text: "No text was read." }));
  if (row.layout !== null) {
    const { name, fields } = layouts[row.layout];
    const passes = row.steps ? ` · ${counted(row.steps, "forward pass", "forward passes")}` : "";
    const items = fields.flatMap((field) => {
      const item = fieldItem(row, field, field === active);
      return field === active ? [item, correction(row, field)] : [item];
    });
    parts.push(make("h3", { text: `${name ?? "Fields"}${passes}` }), make("div", { classes: "list" }, ...items));
  }
  return parts;
}

/** A page of a PDF file, with a box over every value that stands on it. */
function pageView([number, image, width, height, marks], active) {
  const boxes = marks.map(([field, left, top, right, bottom]) => {
    const name = data.fields[field];
    const box = make("button", {
      type: "button", title: name, "aria-label": `${name}, on page ${number}`,
      classes: field === active ? "box active" : "box", onclick: () => choose(field),
    });
    const places = { left: left / width, top: top / height, width: (right - left) / width, height: (bottom - top) / height };
    for (const [side, share] of Object.entries(places)) box.style.setProperty(side, `${100 * share}%`);
    return box;
  });
  const picture = make("img", { src: image, alt: `Page ${number}` });
  return make("div", { classes: "page" }, picture, ...boxes);
}

function documentTop(row) {
  const step = (by, text, label) => button(text, label, () => grid.moveTo(grid.at.row + by, grid.at.column));
  const title = row.id === null ? `Document ${row.index}` : `${row.id} (document ${row.index})`;
  return panelTop(
    make("h2", { text: title }),
    checkButton(row),
    step(-1, "↑", "Previous document (k)"),
    step(1, "↓", "Next document (j)"),
  );
}

/** A heading, what belongs beside it, and what closes the panel. */
function panelTop(...children) {
  return make("div", { classes: "panel-top" }, ...children, button("×", "Close (Esc)", () => panel.close()));
}

function button(text, label, onclick) {
  return make("button", { type: "button", text, title: label, "aria-label": label, onclick });
}

function problemList(problems) {
  const lines = problems.map(([field, message, raw]) =>
    make("div", { text: `${field ? `${field}: ` : ""}${message}${raw ? `, from ${raw}` : ""}` }));
  return make("div", { classes: "problems" }, ...lines);
}

/** All spans in one of a row's texts, with their fields. */
function spansIn(row, place) {
  const found = [];
  const fields = row.layout === null ? [] : layouts[row.layout].fields;
  for (const field of fields) {
    for (const span of row.cell(field).s ?? []) {
      if (span && span[2] === place) found.push({ start: span[0], end: span[1], field });
    }
  }
  return found;
}

/** Text nodes and marks; spans that overlap are cut where they do, so that marks never nest. */
function markedText(text, spans, active) {
  const cuts = [...new Set([0, text.length, ...spans.flatMap(({ start, end }) => [start, end])])].sort((a, b) => a - b);
  const nodes = [];
  for (let i = 0; i + 1 < cuts.length; i++) {
    const [start, end] = [cuts[i], cuts[i + 1]];
    const piece = text.slice(start, end);
    const covering = spans.filter((span) => span.start <= start && end <= span.end);
    if (!covering.length) {
      nodes.push(piece);
      continue;
    }
    const fields = covering.map((span) => span.field);
    const names = fields.map((field) => data.fields[field]).join(", ");
    const ending = covering.filter((span) => span.end === end).map((span) => data.fields[span.field]);
    const mark = make("mark", {
      text: piece, tabindex: 0, role: "button", title: names, "aria-label": `${piece}: ${names}`,
      classes: fields.includes(active) ? "active" : undefined,
      "data-label": ending.length ? ending.join(", ") : undefined,
      onclick: () => choose(fields[0]),
      onkeydown: (event) => event.key === "Enter" && (event.stopPropagation(), choose(fields[0])),
    });
    nodes.push(mark);
  }
  return nodes;
}

/** Points the cursor at a field of the document that is open. */
function choose(field) {
  const column = grid.columns.findIndex(({ by }) => by === field);
  grid.moveTo(grid.at.row, column);
}

function fieldItem(row, field, active) {
  const cell = row.cell(field);
  const top = make("span", { classes: "top" },
    make("span", { classes: "name", text: data.fields[field] }),
    make("span", { classes: "shown", text: isNull(cell) ? "–" : textOf(cell) }));
  if (cell.c !== undefined) {
    const meter = make("span", { classes: "meter", "aria-hidden": true }, make("i"));
    meter.style.setProperty("--confidence", cell.c);
    top.append(meter, make("span", { classes: "figure", text: cell.c.toFixed(2), title: "confidence" }));
  }
  const more = make("span", { classes: "more" });
  if (row.labels?.has(field)) more.append(make("strong", { text: `corrected: ${labelOf(row.labels.get(field)) ?? "null"}` }), make("br"));
  for (const [, message] of cell.errors ?? []) more.append(make("span", { text: message }), make("br"));
  if (cell.r !== undefined) more.append("wrote ", make("code", { text: cell.r }), " · ");
  const facts = [counted(cell.t ?? 0, "token"), ENDS[cell.f ?? "stop"], grounding(cell), otherwise(cell)];
  if (cell.k !== undefined) facts.push(`its type allows ${Math.round(100 * cell.k)} % of what the model would write`);
  if (cell.m) facts.push(cell.m);
  if (cell.o) facts.push("left out: too improbable");
  more.append(facts.filter(Boolean).join(" · "));
  return make("button", {
    type: "button", classes: ["item", ...classesOf(cell), active ? "active" : ""].join(" "),
    "aria-pressed": active, onclick: () => choose(field),
  }, top, more);
}

const ENDS = { stop: "stopped", eos: "end of output", length: "ran out of its budget" };

/** The likeliest other values, and how probable they were. */
function otherwise(cell) {
  const others = cell.a ?? (cell.n >= 0.005 && !isNull(cell) ? [["null", cell.n]] : []);
  return others.length ? `or ${others.map(([text, p]) => `${text} (${p.toFixed(2)})`).join(", ")}` : "";
}

function grounding(cell) {
  if (cell.g === undefined || isNull(cell)) return "";
  if (cell.g === 1) return "found";
  const found = (cell.s ?? []).filter(Boolean).length;
  return found ? `${found} of ${cell.s.length} found` : "not in the text";
}
