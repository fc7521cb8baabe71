// The first page: counts of all rows, and what they were made with.

const share = (part, whole) => (whole ? `${((100 * part) / whole).toFixed(1)} %` : "–");

function tableOf(heads, lines) {
  const row = (tag, cells) => make("tr", {}, ...cells.map((text) => make(tag, { text })));
  return make("table", {}, row("th", heads), ...lines.map((cells) => row("td", cells)));
}

function overviewParts() {
  const { facts, promised, failed, failures, errors, duplicates, fields } = data.overview;
  const parts = [];
  if (facts.length) {
    parts.push(make("dl", {}, ...facts.flatMap(([name, text]) => [make("dt", { text: name }), make("dd", { text })])));
  }
  if (fields.length) {
    const known = fields.some(({ confidence }) => confidence !== null);
    const heads = ["Field", "Stated", "Errors", ...(known ? ["Confidence", "Lowest"] : [])];
    const lines = fields.map(({ name, rows: of, stated, errors: wrong, confidence, least }) => {
      const more = known ? [confidence?.toFixed(2) ?? "–", least?.toFixed(2) ?? "–"] : [];
      return [name, share(stated, of), wrong.toLocaleString("en"), ...more];
    });
    parts.push(tableOf(heads, lines));
  }
  if (promised.length) parts.push(tableOf(promised[0], promised.slice(1)));
  const kinds = (title, found) => {
    if (found.length) parts.push(tableOf([title, "Rows"], found.map(([kind, count]) => [kind, count.toLocaleString("en")])));
  };
  kinds(`Failed: ${counted(failed, "row")} of ${data.total.toLocaleString("en")}`, failures);
  kinds("Values that could not be used", errors);
  const [again, ids] = duplicates;
  if (again) parts.push(make("p", { text: `${counted(again, "row")} with an id that an earlier row has: ${ids.join(", ")}` }));
  return parts;
}

/** Open from the start where a run has finished the table. */
function setUpOverview() {
  find("overview").append(make("div", { classes: "overview" }, ...overviewParts()));
  find("overview").open = data.overview.facts.length > 0;
}
