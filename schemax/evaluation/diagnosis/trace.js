// Plays back a trace: a row per field, a column per pass. Of a trace that goes on, more of the same
// is mounted again.
let timer = null;

function mountTrace({ text, field: shownField, fields: known, passes, row, prompt_tokens, one_by_one }) {
  const at = find("at");
  const play = find("play");
  const fields = known || [...new Set(passes.flat().map((written) => written.field))];
  const results = row.fields || {};
  const reduced = matchMedia("(prefers-reduced-motion: reduce)").matches;
  /** The number of the last pass that wrote into a field; -1 if none did. */
  const lastPass = (field) => passes.findLastIndex((one) => one.some((written) => written.field === field));

  const visible = (token) => token.replace(/\n/g, "⏎").replace(/^ /, "␣");
  const percent = (share) => (share >= 0.9995 ? "100 %" : `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %`);

  function token(written) {
    const rivals = written.rivals.map(([rival, share]) => `${visible(rival)} ${percent(share)}`).join(" · ");
    const told = `${rowOf(written)}: ${visible(written.text)} with ${percent(written.probability)}; likeliest: ${rivals}`;
    const tell = () => { find("rivals").textContent = told; };
    const classes = written.probability < 0.5 ? "token low" : "token";
    const made = make("span", { text: visible(written.text), classes, tabindex: 0, title: told, onmouseenter: tell, onfocus: tell });
    made.style.background = `rgb(86 180 233 / ${(0.06 + 0.44 * written.probability).toFixed(2)})`;
    return made;
  }

  function value(name) {
    const found = results[name]?.value ?? null;
    if (found === null) return "–";
    return typeof found === "string" ? found : JSON.stringify(found);
  }

  function sureness(name) {
    const { value: found = null, confidence = null } = results[name] ?? {};
    return found === null || confidence === null ? "" : ` ${percent(confidence)}`;
  }

  // A field's own row, and those of what was written once more: a second chance, a choice as a text.
  function rowOf(written) {
    return written.field + (written.again ? " (second chance)" : "") + (written.as_text ? " (as text)" : "");
  }

  function rows() {
    return fields.flatMap((field) => {
      const others = passes.flat().filter((written) => written.field === field).map(rowOf);
      return [...new Set([field, ...others])].map((name) => [field, name]);
    });
  }

  function valueCell(field, name) {
    const cell = make("td", { classes: "value", "data-pass": lastPass(field) });
    if (name !== field) return cell;
    cell.append(value(field), make("small", { text: sureness(field) }));
    if (results[field]?.note) cell.append(make("div", { text: results[field].note, classes: "note" }));
    return cell;
  }

  function fill() {
    const heads = ["field", ...passes.map((_, number) => `pass ${number + 1}`), "value"];
    find("head").replaceChildren(...heads.map((text) => make("th", { text })));
    const lines = rows().map(([field, name]) => {
      const cells = passes.map((one, number) =>
        make("td", { "data-pass": number }, ...one.filter((written) => rowOf(written) === name).map(token)));
      return make("tr", {}, make("th", { text: name }), ...cells, valueCell(field, name));
    });
    find("body").replaceChildren(...lines);
  }

  // Spans are offsets into the texts by Unicode characters, as Python counts them.
  function marked(until) {
    const characters = Array.from(text);
    const spans = fields
      .filter((name) => lastPass(name) < until && results[name])
      .flatMap((name) => (results[name].spans || [results[name].span])
        .filter((span) => span && span.field === shownField)
        .map((span) => [span.start, span.end, name]));
    spans.sort((a, b) => a[0] - b[0]);
    const nodes = [];
    let done = 0;
    for (const [start, end, name] of spans) {
      if (start < done) continue;
      nodes.push(characters.slice(done, start).join(""));
      nodes.push(make("mark", { text: characters.slice(start, end).join(""), title: name + sureness(name) }));
      done = end;
    }
    find("document").replaceChildren(...nodes, characters.slice(done).join(""));
  }

  function show(until) {
    at.value = until;
    for (const cell of document.querySelectorAll("[data-pass]")) {
      cell.classList.toggle("later", Number(cell.dataset.pass) >= until);
    }
    const rest = one_by_one ? `; one token at a time: ${one_by_one}` : " so far";
    find("count").textContent = `${until} of ${passes.length} passes${rest}`;
    marked(until);
  }

  function stop() {
    clearInterval(timer);
    timer = null;
    play.textContent = "Play";
  }

  play.onclick = () => {
    if (timer !== null) return stop();
    if (Number(at.value) >= passes.length) show(0);
    play.textContent = "Stop";
    timer = setInterval(() => {
      show(Number(at.value) + 1);
      if (Number(at.value) >= passes.length) stop();
    }, reduced ? 50 : 500);
  };
  at.oninput = () => { stop(); show(Number(at.value)); };

  stop();
  at.max = passes.length;
  find("summary").textContent = `${prompt_tokens} tokens read; ${fields.length} fields in ${passes.length} passes`;
  fill();
  show(passes.length);
}
