// The controls, and the start: everything else has been defined by now.

/** After a change of filter, order or columns. */
function update() {
  grid.refresh();
  const { field, state, only } = filter;
  find("field").value = field ?? "";
  find("state").value = state;
  find("only").hidden = only === null;
  find("only").textContent = only?.label ?? "";
  find("clear").hidden = !isFiltered();
  const total = counted(rows.length, "row");
  find("count").textContent = isFiltered() ? `${grid.shown.length.toLocaleString("en")} of ${total}` : total;
  panel.draw();
}

function sortBy(by) {
  turnOrder(by);
  update();
  grid.element.scrollTop = 0; // to what comes first now
  grid.paint();
}

function setState(field, state) {
  Object.assign(filter, { field, state });
  update();
}

/** Keeps the rows of one value or range; the same once more drops that again. */
function setOnly(only) {
  filter.only = filter.only?.label === only.label ? null : only;
  update();
}

function clear() {
  Object.assign(filter, { words: [], field: null, state: "any", below: 1, only: null, layout: null });
  find("search").value = "";
  find("below").value = 1;
  find("bound").textContent = "any";
  find("layout").value = "";
  setFields();
  grid.layOut();
  update();
}

function setFields() {
  const options = [make("option", { value: "", text: "any field" })];
  const fields = filter.layout === null ? [...data.fields.keys()] : layouts[filter.layout].fields;
  for (const field of fields) options.push(make("option", { value: field, text: data.fields[field] }));
  find("field").replaceChildren(...options);
  if (!fields.includes(filter.field)) filter.field = null;
}

const numberOrNull = (text) => (text === "" ? null : Number(text));

function setUpControls() {
  setFields();
  find("state").append(...Object.entries(STATES).map(([value, [text]]) => make("option", { value, text })));
  if (layouts.length > 1) {
    find("layout").hidden = false;
    find("layout").append(make("option", { value: "", text: "all schemas" }));
    layouts.forEach(({ name }, value) => {
      find("layout").append(make("option", { value, text: name ?? `schema ${value + 1}` }));
    });
  }
  find("threshold").hidden = !hasConfidence;

  let waiting = 0;
  find("search").addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      filter.words = find("search").value.toLowerCase().split(/\s+/).filter(Boolean);
      update();
    }, 80);
  });
  find("layout").addEventListener("change", () => {
    filter.layout = numberOrNull(find("layout").value);
    setFields();
    grid.layOut();
    update();
  });
  find("field").addEventListener("change", () => setState(numberOrNull(find("field").value), filter.state));
  find("state").addEventListener("change", () => setState(filter.field, find("state").value));
  find("below").addEventListener("input", () => {
    filter.below = Number(find("below").value);
    find("bound").textContent = filter.below < 1 ? filter.below.toFixed(2) : "any";
    update();
  });
  find("only").addEventListener("click", () => setOnly(filter.only));
  find("clear").addEventListener("click", clear);
  find("filters").addEventListener("submit", (event) => event.preventDefault());
  find("keys").addEventListener("click", () => find("help").showModal());
}

function setUpGrid() {
  let due = false;
  const soon = () => {
    if (!due) requestAnimationFrame(() => ((due = false), grid.paint()));
    due = true;
  };
  grid.element.addEventListener("scroll", soon, { passive: true });
  new ResizeObserver(soon).observe(grid.element);
  grid.body.addEventListener("mouseover", (event) => {
    const place = grid.placeOf(event);
    if (place) event.target.closest("[role=gridcell]").title = grid.explain(place);
  });
  grid.body.addEventListener("click", (event) => {
    const place = grid.placeOf(event);
    if (!place || String(getSelection())) return; // a selection is not a click
    grid.moveTo(place.row, place.column);
    panel.document();
  });
}

function summary() {
  const cells = rows.flatMap((row) => row.cells);
  const parts = [counted(data.total, "document")];
  const add = (count, words) => count && parts.push(`${count.toLocaleString("en")} ${words}`);
  add(rows.filter((row) => row.failed).length, "failed");
  add(cells.filter(STATES.stated[1]).length, "values");
  add(cells.filter(STATES.error[1]).length, "with an error");
  add(cells.filter(STATES.ungrounded[1]).length, "not in the text");
  return parts.join(" · ");
}

function notice() {
  const parts = [];
  if (data.cut) parts.push("The run ended before all documents were read.");
  const left = data.total - rows.length;
  if (left > 0) {
    const [held, more] = [counted(rows.length, "document"), left.toLocaleString("en")];
    const which = data.ranked ? `the ${held} to correct first` : `the first ${held}`;
    parts.push(`The page holds ${which}; ${more} more are in the results only.`);
  }
  return parts.join(" ");
}

find("summary").textContent = summary();
find("notice").textContent = notice();
find("notice").hidden = !notice();
setUpOverview();
setUpControls();
setUpExport();
setUpGrid();
grid.layOut();
update();
document.addEventListener("keydown", onKey);
grid.element.focus();
